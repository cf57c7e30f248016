"""Other topics go ahead of a backlog, each by its share, and each in its own order."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.wheel.delay_log import DelayLog
from tarry.wheel.overtaking_choice import shares
from tarry.wheel.state import HOUR_MS, MARK, CancelOutcome, MessageState, Taken, WheelSettings
from tarry.wheel.wheel import Wheel
from tests.wheel.sorted_list import START_MS, u4
from tests.wheel.test_cost import lines_run

HOUR = START_MS // HOUR_MS
CROWD, SMALL, OTHER = 1, 2, 3
QUIET = WheelSettings(near_messages_max=2_000)


def _put(wheel: Wheel, topic: int, due_ms: list[int]) -> list[int]:
    """Schedule messages of one topic; their global indices."""
    n = len(due_ms)
    columns = np.full(n, topic, np.uint32), np.ones(n, np.uint64)
    return wheel.append(np.array(due_ms, np.int64), *columns, [b"r"] * n).global_index.tolist()


def _loaded(wheel: Wheel) -> Wheel:
    """As it is after some heartbeats."""
    wheel.take(START_MS, 1)
    for _ in range(10):
        wheel.load_ahead(START_MS)
    return wheel


@given(topic=st.lists(st.integers(0, 5), max_size=60), quota=st.integers(1, 40))
def test_shares_are_max_min_fair_and_take_each_topics_first_ones(topic: list[int], quota: int) -> None:
    chosen = shares(np.array(topic, np.uint32), quota).tolist()
    assert chosen == sorted(set(chosen))
    assert len(chosen) <= quota
    there, got = Counter(topic), Counter(topic[at] for at in chosen)
    for each in there:
        assert [at for at in chosen if topic[at] == each] == [i for i, t in enumerate(topic) if t == each][
            : got[each]
        ]
        if got[each] < there[each] and quota >= len(there):  # who has to wait got as much as any other
            assert got[each] == max(got.values())
    if quota >= len(topic):
        assert len(chosen) == len(topic)


def test_with_more_topics_than_may_overtake_the_first_due_go() -> None:
    assert shares(u4(5, 5, 4, 3, 2), 3).tolist() == [0, 2, 3]


def test_topics_with_little_go_ahead_of_one_with_a_crowd(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, WheelSettings())
    _put(wheel, CROWD, [START_MS + 100] * 5_000)
    small = _put(wheel, SMALL, [START_MS + 900, START_MS + 300])
    marked = _put(wheel, int(np.uint32(OTHER) | MARK), [START_MS + 400])
    _put(wheel, SMALL, [START_MS + 2_000])
    hour, index = _loaded(wheel).overtaking(START_MS + 1_000, 1_000, 64)
    assert index.tolist() == [small[1], *marked, small[0]]
    overtaken = wheel.overtake(hour, index)
    assert (overtaken.global_index == index).all()
    assert (overtaken.hour == HOUR).all()
    assert overtaken.due_ms.tolist() == [START_MS + 300, START_MS + 400, START_MS + 900]
    assert wheel.pending == 5_001
    assert wheel.pending_of(SMALL) == 1
    assert wheel.overtaking(START_MS + 1_000, 1_000, 64)[0].tolist() == []
    assert (wheel.take(START_MS + 1_000, 10_000).topic == CROWD).all()


def test_what_has_overtaken_is_released_for_good(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, WheelSettings())
    _put(wheel, CROWD, [START_MS + 100] * 10)
    (small,) = _put(wheel, SMALL, [START_MS + 900])
    (gone,) = _put(wheel, SMALL, [START_MS + 950])
    wheel.cancel(u4(HOUR), u4(gone))
    assert len(wheel.overtake(u4(HOUR, HOUR, HOUR, HOUR + 1), u4(small, gone, 99, 0))) == 1
    assert len(wheel.overtake(u4(HOUR), u4(small))) == 0
    assert wheel.cancel(u4(HOUR, HOUR), u4(small, gone)).outcomes.tolist() == [
        CancelOutcome.ALREADY_RELEASED,
        CancelOutcome.ALREADY_CANCELLED,
    ]
    assert wheel.state(HOUR, small) is MessageState.RELEASED
    assert wheel.state(HOUR, gone) is MessageState.CANCELLED
    state, before = wheel.capture(), wheel.digest()
    wheel.sync(state)
    wheel.close()
    wheel = Wheel.recover(tmp_path, WheelSettings(), state)
    assert wheel.digest() == before
    assert wheel.state(HOUR, small) is MessageState.RELEASED
    assert wheel.state(HOUR, gone) is MessageState.CANCELLED
    assert len(wheel.take(START_MS + 1_000, 100)) == 10


def test_a_wheel_that_let_others_overtake_is_another_than_one_that_cancelled_them(tmp_path: Path) -> None:
    one, other = Wheel(tmp_path / "one", WheelSettings()), Wheel(tmp_path / "other", WheelSettings())
    for wheel in (one, other):
        _put(wheel, SMALL, [START_MS + 900])
    one.cancel(u4(HOUR), u4(0))
    other.overtake(u4(HOUR), u4(0))
    assert one.pending == other.pending == 0
    assert one.digest() != other.digest()


def test_others_are_found_wherever_they_are_in_a_backlog(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, QUIET)
    _put(wheel, CROWD, [START_MS + second * 1_000 for second in range(7_000)])
    small = _put(wheel, SMALL, [START_MS + 3_599_000, START_MS + 3_600_000])
    hour, index = _loaded(wheel).overtaking(START_MS + 2 * HOUR_MS, 100, 64)
    assert list(zip(hour.tolist(), index.tolist(), strict=True)) == [(HOUR, small[0]), (HOUR + 1, small[1])]
    more = _put(wheel, SMALL, [START_MS + 1_500])  # comes while the backlog is there
    assert wheel.overtaking(START_MS + 2 * HOUR_MS, 100, 64)[1].tolist() == more


def test_a_pass_is_made_in_steps_and_chooses_when_it_has_seen_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.wheel.overtaking_choice._STEP_UNITS", 1_000)
    wheel = Wheel(tmp_path, QUIET)
    small = _put(wheel, SMALL, [START_MS + 900])
    _put(wheel, CROWD, [START_MS + 100] * 2_500)
    _loaded(wheel)
    found = [wheel.overtaking(START_MS + 1_000, 100, 64)[1].tolist() for _ in range(4)]
    assert found == [[], [], small, []]


@pytest.mark.parametrize("together", [1, 2, 99, 100, 101, 450])
def test_more_others_than_are_held_are_found_by_and_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr("tarry.wheel.overtaking_choice._FOUND_MAX", 100)
    wheel = Wheel(tmp_path, QUIET)
    _put(wheel, CROWD, [START_MS + 100] * 1_000)
    small = _put(wheel, SMALL, [START_MS + 200 + n // together for n in range(450)])
    _loaded(wheel)
    found: list[int] = []
    for _ in range(40):
        hour, index = wheel.overtaking(START_MS + 1_000, 100, 64)
        found += wheel.overtake(hour, index).global_index.tolist()
    assert found == small


def test_another_topic_in_front_is_helped_no_more_and_the_first_is(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, WheelSettings())
    first = _put(wheel, CROWD, [START_MS + 100] * 1_000 + [START_MS + 700])
    _put(wheel, SMALL, [START_MS + 200] * 1_000)
    _loaded(wheel)
    assert len(wheel.overtaking(START_MS + 1_000, 100, 64)[0]) == 64
    wheel.take(START_MS + 1_000, 1_000)
    assert wheel.overtaking(START_MS + 1_000, 100, 64)[1].tolist() == first[-1:]


def test_nothing_overtakes_nothing(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, WheelSettings())
    assert len(wheel.overtaking(START_MS + 1_000, 100, 64)[0]) == 0
    assert len(wheel.overtake(u4(), u4())) == 0


def _commit(wheel: Wheel, until_ms: int, slice_messages: int, quota: int) -> tuple[Taken, Taken]:
    """One commit of a backlog: what overtakes, and what goes in the order of due times."""
    return wheel.overtake(*wheel.overtaking(until_ms, slice_messages, quota)), wheel.take(
        until_ms, slice_messages
    )


def test_a_small_topic_waits_for_a_few_commits_where_two_have_a_crowd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.wheel.overtaking_choice._STEP_UNITS", 1_000)
    monkeypatch.setattr("tarry.wheel.overtaking_choice._FOUND_MAX", 300)
    wheel = Wheel(tmp_path, QUIET)
    _put(wheel, CROWD, [START_MS + 100] * 2_500)
    crowd = _put(wheel, OTHER, [START_MS + 200 + n % 50 for n in range(2_500)])
    small = _put(wheel, SMALL, [START_MS + 900] * 10)
    _loaded(wheel)
    overtook = [_commit(wheel, START_MS + 1_000, 10, 20)[0] for _ in range(60)]
    got = [Counter(each.topic.tolist()) for each in overtook]
    first = next(at for at, each in enumerate(got) if each)
    assert first < 15
    assert all(each == {OTHER: 10, SMALL: 10} for each in got[first : first + 1])
    assert all(each == {OTHER: 20} for each in got[first + 1 :])  # as long as passes over the rest take
    found = np.concatenate([each.global_index[each.topic == OTHER] for each in overtook]).tolist()
    assert found == sorted(crowd, key=lambda index: ((index - crowd[0]) % 50, index))[: len(found)]
    assert set(small) == {int(at) for each in overtook for at in each.global_index[each.topic == SMALL]}


def test_what_may_overtake_is_shared_among_all_that_is_due(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, WheelSettings())
    _put(wheel, CROWD, [START_MS + 100] * 1_000)
    _put(wheel, OTHER, [START_MS + 200] * 40_000)
    _put(wheel, SMALL, [START_MS + 900] * 10)
    _loaded(wheel)
    overtook, _ = _commit(wheel, START_MS + 1_000, 100, 100)
    assert Counter(overtook.topic.tolist()) == {OTHER: 90, SMALL: 10}


def test_a_pass_that_takes_longer_than_it_looks_ahead_is_still_of_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.wheel.overtaking_choice._STEP_UNITS", 1_000)
    wheel = Wheel(tmp_path, QUIET)
    _put(wheel, CROWD, [START_MS + 100] * 4_500)
    _put(wheel, SMALL, [START_MS + 900] * 3)
    _loaded(wheel)
    found = [len(_commit(wheel, START_MS + 1_000 + at * 20_000, 10, 2)[0]) for at in range(8)]
    assert found == [0, 0, 0, 0, 2, 1, 0, 0]


def test_who_is_known_goes_on_overtaking_while_another_pass_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.wheel.overtaking_choice._STEP_UNITS", 1_000)
    wheel = Wheel(tmp_path, QUIET)
    _put(wheel, CROWD, [START_MS + 100] * 400 + [START_MS + 800] * 3_600)
    _put(wheel, OTHER, [START_MS + 200] * 4_000)
    _put(wheel, SMALL, [START_MS + 900] * 300)
    _loaded(wheel)
    got = [Counter(_commit(wheel, START_MS + 1_000, 50, 20)[0].topic.tolist()) for _ in range(24)]
    assert got[8:16] == [{OTHER: 10, SMALL: 10}] * 8  # the crowd leaves the front
    assert all(each[SMALL] == 10 for each in got[16:])
    assert got[-1] == {CROWD: 10, SMALL: 10}


def test_two_crowds_in_front_cost_no_pass_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.wheel.overtaking_choice._FOUND_MAX", 100)
    looked_at, block = [], DelayLog.block
    monkeypatch.setattr(DelayLog, "block", lambda *at: looked_at.append(at) or block(*at))
    wheel = Wheel(tmp_path, WheelSettings())
    for n in range(1_000):
        _put(wheel, CROWD, [START_MS + 100 + n // 10])
        _put(wheel, OTHER, [START_MS + 100 + n // 10])
    _loaded(wheel)
    passes = []
    for _ in range(15):
        looked_at.clear()
        _commit(wheel, START_MS + 1_000, 100, 10)
        passes.append(len(looked_at))
    assert passes[-10:] == [0] * 10


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 40)), min_size=1, max_size=150),
    st.integers(1, 20),
    st.integers(5, 30),
    st.integers(1, 8),
)
def test_whatever_is_held_and_seen_at_once_each_topic_goes_in_its_order_and_nothing_is_named_twice(
    messages: list[tuple[int, int]], found_max: int, step_units: int, quota: int
) -> None:
    with (
        TemporaryDirectory() as folder,
        patch("tarry.wheel.overtaking_choice._FOUND_MAX", found_max),
        patch("tarry.wheel.overtaking_choice._STEP_UNITS", step_units),
    ):
        wheel = Wheel(Path(folder), WheelSettings())
        topic, due = (np.array(column) for column in zip(*messages, strict=True))
        none = np.zeros(len(due), np.uint64)
        wheel.append(START_MS + 1 + due, topic.astype(np.uint32), none, [b"r"] * len(due))
        _loaded(wheel)
        parts = []
        while wheel.pending:
            chosen = wheel.overtaking(START_MS + 100, 3, quota)
            overtook = wheel.overtake(*chosen)
            assert len(overtook) == len(chosen[0]) <= quota
            parts += [overtook, wheel.take(START_MS + 100, 3)]
        left = np.concatenate([part.topic for part in parts]), np.concatenate([part.due_ms for part in parts])
        for each in range(5):
            assert (np.diff(left[1][left[0] == each]) >= 0).all()


def test_who_overtakes_costs_no_step_for_an_hour_with_nothing_new(tmp_path: Path) -> None:
    lines = []
    for hours in (10, 100):
        wheel = Wheel(tmp_path / str(hours), WheelSettings(hours_open_max=2))
        _put(wheel, CROWD, [START_MS + 100] * 200)
        _put(wheel, SMALL, [START_MS + HOUR_MS * hour for hour in range(1, hours)])
        _loaded(wheel)
        wheel.overtaking(START_MS + 1_000, 10, 5)
        lines.append(lines_run(lambda: wheel.overtaking(START_MS + 1_000, 10, 5)))  # noqa: B023
    assert lines[0] == lines[1]


def test_who_overtakes_is_looked_for_in_a_bounded_number_of_a_backlogs_hours(tmp_path: Path) -> None:
    lines = []
    for hours in (1_100, 4_400):
        wheel = Wheel(tmp_path / str(hours), WheelSettings())
        for topic in (CROWD, SMALL):
            _put(wheel, topic, [START_MS + HOUR_MS * hour for hour in range(1, hours)])
        _loaded(wheel)
        until_ms = START_MS + hours * HOUR_MS
        calls = [lines_run(lambda: wheel.overtaking(until_ms, 10, 5)) for _ in range(3)]  # noqa: B023
        lines.append(calls)
    assert lines[0] == lines[1]
