"""The wheel is a sorted list, whatever is done to it, whatever it may keep in memory, and across crashes."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from tarry.wheel.hour_counts import HOURS
from tarry.wheel.state import HOUR_MS, MessageState, WheelSettings, WheelState
from tarry.wheel.wheel import Wheel
from tests.wheel.sorted_list import START_MS, SortedList, append, ids, rows

ROOMY = WheelSettings()
TIGHT = WheelSettings(
    near_ms=2_000, near_messages_max=6, hours_open_max=1, read_gap_bytes=0, resident_bytes_max=0
)

# How seconds are collected is chosen by cost; here every way is taken with few messages.
BY_COST: dict[str, int] = {}
ALONG_CHAINS = {
    "index_scan.CHAIN_STEP_UNITS": 0,
    "index_scan.CHAIN_START_UNITS": 0,
    "bitmaps._SEARCHED": 0,
}
IN_SMALL_STEPS = {
    "release._TAKE_COST": 8,
    "release._AHEAD_COST": 8,
    "release._CROWD_MESSAGES": 2,
    "release._AT_ONCE_COST": 40,
    "hour_wheel._LARGE_UNITS": 0,
    "index_scan._RUN_MESSAGES": 2,
    "release._AHEAD_MESSAGES_MAX": 1,
    "index_scan.BLOCK_UNITS": 4,
}
ALONG_CHAINS_IN_SMALL_STEPS = {
    **ALONG_CHAINS,
    "release._TAKE_COST": 128,
    "release._AHEAD_COST": 128,
    "release._CROWD_MESSAGES": 2,
    "release._AT_ONCE_COST": 40,
    "hour_wheel._LARGE_UNITS": 0,
    "index_scan._RUN_MESSAGES": 2,
}
SCATTERED = {
    "index_scan.CHAIN_STEP_UNITS": 1,
    "index_scan.CHAIN_START_UNITS": 0,
    "index_scan._SAMPLE_UNITS": 2,
    "index_scan._DENSE_UNITS": 0,
}
# Far hours get so many messages in few appends of thousands; here what is far goes to the far log.
FAR = {"placement._DIRECT_HOURS": 0, "placement._DENSE_UNITS": 4, "far_log.SEGMENT_UNITS": 4}
SOON_FULL = {**FAR, "placement._FULL_UNITS": 2, "far_log.SEGMENT_UNITS": 8, "far_log._CLEANED_MIN": 3}
SOON_FULL |= {"far_log._CLEANED_BYTES": 40, "placement._MOVED_BYTES": 1}
WAYS = [BY_COST, ALONG_CHAINS, IN_SMALL_STEPS, ALONG_CHAINS_IN_SMALL_STEPS, SCATTERED, FAR, SOON_FULL]


def collect_by(way: dict[str, int]) -> pytest.MonkeyPatch:
    patch = pytest.MonkeyPatch()
    for name, value in way.items():
        patch.setattr(f"tarry.wheel.{name}", value)
    return patch


# Few distinct times, on and beside the edges of seconds and hours, so that they meet; and some far ones.
near_times = st.builds(
    lambda hour, second, ms: START_MS + hour * HOUR_MS + second * 1000 + ms,
    st.integers(-1, 1),
    st.sampled_from([0, 1, 2, 9, 10, 11, 3598, 3599]),
    st.sampled_from([0, 1, 500, 999]),
)
far_times = st.builds(lambda days: START_MS + days * 24 * HOUR_MS - 1, st.integers(1, 36_600))
times = near_times | near_times | near_times | far_times


HOURS_END = START_MS // HOUR_MS + 10_000
"""Behind every hour of the test."""


class WheelAndList(RuleBasedStateMachine):
    names = Bundle("names")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.list = SortedList()
        self.commands: list[Callable[[Wheel], Any]] = []
        self.synced = WheelState()
        self.passed_over = False
        self.gone: set[tuple[int, int]] = set()  # cancelled or overtaken by name: a pass does not hear of it

    @initialize(options=st.sampled_from([ROOMY, TIGHT]), way=st.sampled_from(WAYS))
    def start(self, options: WheelSettings, way: dict[str, int]) -> None:
        self.options = options
        self.way = collect_by(way)
        self.path = Path(self.folder.name) / "hours"
        self.wheel = Wheel(self.path, options)

    def do(self, command: Callable[[Wheel], Any]) -> Any:
        self.commands.append(command)
        return command(self.wheel)

    @rule(target=names, due_ms=st.lists(times, min_size=0, max_size=12))
    def append(self, due_ms: list[int]) -> Any:
        floor_ms = self.list.floor_hour * HOUR_MS  # what comes before is stored there, with its own topic
        due_ms = [max(due, floor_ms) for due in due_ms]
        got = self.do(lambda wheel: append(wheel, due_ms))
        assert got == self.list.append(due_ms)
        return multiple(*got)

    @rule(until_ms=times, count=st.sampled_from([0, 1, 2, 5, 1000]))
    def take(self, until_ms: int, count: int) -> None:
        front = self.wheel.front(until_ms, count).tolist()
        taken = rows(self.do(lambda wheel: wheel.take(until_ms, count)))
        assert taken == self.list.take(until_ms, count)
        assert [due % 7 for due, _, _ in taken[: len(front)]] == front

    @rule(now_ms=times)
    def load_ahead(self, now_ms: int) -> None:
        self.wheel.load_ahead(now_ms)  # not a command: whoever recovers does without

    @rule(until_ms=times)
    def take_all(self, until_ms: int) -> None:
        assert rows(self.do(lambda wheel: wheel.take(until_ms, 10**6))) == self.list.take(until_ms, 10**6)

    @rule(chosen=st.lists(names, min_size=1, max_size=6))
    def cancel(self, chosen: list[tuple[int, int]]) -> None:
        self.gone.update(chosen)
        expected = [self.list.cancel([name])[0] for name in chosen]
        assert self.do(lambda wheel: wheel.cancel(*ids(chosen)).outcomes).tolist() == expected

    @rule(chosen=st.lists(names, min_size=1, max_size=6))
    def withdraw(self, chosen: list[tuple[int, int]]) -> None:
        chosen = [name for name in chosen if self.list.states.get(name) is MessageState.RELEASED]
        self.do(lambda wheel: wheel.withdraw(*ids(chosen)))
        self.list.withdraw(chosen)
        states = self.wheel.states(*ids([*self.list.states, (HOURS_END, 0)])).tolist()
        assert states == [*self.list.states.values(), MessageState.NOT_FOUND]

    @rule(chosen=st.lists(names, min_size=1, max_size=6))
    def overtake(self, chosen: list[tuple[int, int]]) -> None:
        self.passed_over = True
        self.gone.update(chosen)
        assert rows(self.do(lambda wheel: wheel.overtake(*ids(chosen)))) == self.list.overtake(chosen)

    @rule(until_ms=times, quota=st.sampled_from([1, 3, 1000]))
    def overtake_as_a_leader_would(self, until_ms: int, quota: int) -> None:
        hour, global_index = self.wheel.overtaking(until_ms, 2, quota)
        chosen = list(zip(hour.tolist(), global_index.tolist(), strict=True))
        assert len(set(chosen)) == len(chosen) <= quota
        self.passed_over |= bool(chosen)
        overtaken = rows(self.do(lambda wheel: wheel.overtake(hour, global_index)))
        assert overtaken == self.list.overtake(chosen)
        assert {(hour, index) for _, hour, index in overtaken} >= set(chosen) - self.gone
        assert all(due <= until_ms for due, _, _ in overtaken)

    @rule(hour=st.integers(-2, 1))
    def drop_hour(self, hour: int) -> None:
        dropped = START_MS // HOUR_MS + hour
        if (dropped + 1) * HOUR_MS <= self.list.cut.due_ms:
            self.do(lambda wheel: wheel.drop_hour(dropped))
            self.list.drop_hour(dropped)
        else:
            with pytest.raises(ValueError, match="not behind the cut"):
                self.wheel.drop_hour(dropped)

    @rule()
    def checkpoint(self) -> None:
        self.synced = self.wheel.capture()
        self.wheel.sync(self.synced)
        self.commands.clear()

    @rule(closed=st.booleans(), summed=st.booleans(), prepared=st.booleans())
    def crash_and_recover(self, closed: bool, summed: bool, prepared: bool) -> None:
        if closed:
            self.wheel.close()
        before = self.wheel.digest()
        if not summed:
            hours = tuple(replace(hour, message_sum=None) for hour in self.synced.hours)
            self.synced = replace(self.synced, hours=hours)
        self.wheel = Wheel.recover(self.path, self.options, self.synced)
        if prepared:
            self.wheel.prepare()
        for command in self.commands:
            command(self.wheel)
        assert self.wheel.digest() == before

    @rule(hour=st.integers(-1, 1))
    def count_seconds(self, hour: int) -> None:
        at = START_MS // HOUR_MS + hour
        expected = [0] * 3600
        for due, _ in self.list.pending:
            if due // HOUR_MS == at:
                expected[due % HOUR_MS // 1000] += 1
        assert self.wheel.pending_per_second(at).tolist() == expected
        ahead = self.wheel.pending_ahead(at * 3600 - 5, 15).tolist()
        for second in range(at * 3600 - 5, at * 3600 + 10):
            pending = sum(due // 1000 == second for due, _ in self.list.pending)
            counted = ahead[second - at * 3600 + 5]
            assert counted == pending if second > self.list.cut.due_ms // 1000 else counted >= pending
        known = self.wheel.pending_seconds(at * 3600 - 5, 15)
        if known is not None:
            begin = max(at * 3600 - 5, self.list.cut.due_ms // 1000)
            assert known.tolist() == [
                sum(due // 1000 == second >= begin for due, _ in self.list.pending)
                for second in range(at * 3600 - 5, at * 3600 + 10)
            ]

    @rule(hour=st.integers(-1, 1), topics=st.sets(st.integers(0, 6)), step=st.sampled_from([1, 3, 1000]))
    def walk_topics(self, hour: int, topics: set[int], step: int) -> None:
        at, place, found = START_MS // HOUR_MS + hour, 0, list[tuple[int, int]]()
        while place < self.wheel.units_in_hour(at):
            page = self.wheel.pending_page(at, np.array(sorted(topics), np.uint32), place, step)
            assert page.end > place
            due_ms = page.units["due_in_hour_ms"] + np.int64(at * HOUR_MS)
            assert all(place <= index < page.end for index in page.global_index.tolist())
            found += zip(due_ms.tolist(), page.global_index.tolist(), strict=True)
            place = page.end
        pending = [(due, n) for due, n in self.list.pending if due // HOUR_MS == at and due % 7 in topics]
        assert found == sorted(pending, key=lambda row: row[1])

    @rule(hour=st.integers(-1, 1))
    def count_places(self, hour: int) -> None:
        at, hours = START_MS // HOUR_MS + hour, {due // HOUR_MS for due, _ in self.list.pending}
        assert self.wheel.next_pending_hour(at) == min((one for one in hours if one >= at), default=None)
        units = sum(self.wheel.units_in_hour(one) for one in (at, at + 1) if one < HOURS or one in hours)
        assert self.wheel.units_between(at, at + 2) == units
        assert self.wheel.topics_with_pending().tolist() == sorted({due % 7 for due, _ in self.list.pending})

    @rule(name=names)
    def look(self, name: tuple[int, int]) -> None:
        if name in self.list.states:
            assert self.wheel.state(*name) == self.list.states[name]
            (record,) = self.wheel.read(*ids([name]))
            (unit,) = self.wheel.units(*ids([name]))
            due_ms = name[0] * HOUR_MS + int(unit["due_in_hour_ms"])
            assert record is not None and int(record[4:]) <= due_ms

    @rule(due_ms=times, later_ms=st.sampled_from([0, 1, 499, 1000]))
    def count_before(self, due_ms: int, later_ms: int) -> None:
        due_ms += later_ms
        counted = self.wheel.pending_before(due_ms)
        hour, second = due_ms // HOUR_MS * HOUR_MS, due_ms // 1000 * 1000
        pending = [due for due, _ in self.list.pending]
        lacking = {sum(due < bound for due in pending) for bound in (hour, second, due_ms)}
        if self.is_far(due_ms):
            assert min(lacking) <= counted <= max(lacking)
            return
        assert counted in lacking
        self.wheel.pending_per_second(due_ms // HOUR_MS)  # opens the hour
        exact = {sum(due < bound for due in pending) for bound in (second, due_ms)}
        assert self.wheel.pending_before(due_ms) in exact
        assert self.wheel.pending_before(second) == sum(due < second for due in pending)

    @rule(now_ms=times)
    def count_overdue(self, now_ms: int) -> None:
        """What a node with room sees of the present, as it loads ahead at each heartbeat."""
        due = [due for due, _ in self.list.pending if due <= now_ms]
        if self.options is TIGHT or len(due) > 100:
            return
        for _ in range(200):
            self.wheel.load_ahead(now_ms)
        if not self.is_far(now_ms + 1):
            assert self.wheel.pending_before(now_ms + 1) == len(due)
        self.wheel.first_due_ms()
        topics, counts, first_ms = (column.tolist() for column in self.wheel.due_topics(now_ms))
        by_topic = {at % 7: [one for one in due if one % 7 == at % 7] for at in due}
        told = dict(zip(topics, zip(counts, first_ms, strict=True), strict=True))
        if not any(map(self.wheel._hours.counts.far_of, self.list.sizes)):
            assert told == {topic: (len(of_topic), of_topic[0]) for topic, of_topic in by_topic.items()}

    @invariant()
    @precondition(lambda self: hasattr(self, "wheel"))
    def first_due_is_never_late(self) -> None:
        first = self.wheel.first_due_ms()
        assert (first is None) == (not self.list.pending)
        if first is not None:
            assert self.list.cut.due_ms // HOUR_MS * HOUR_MS <= first <= self.list.pending[0][0]

    def is_far(self, due_ms: int) -> bool:
        """Return whether some of the hour of that time are in the far log."""
        return bool(self.wheel._hours.counts.far_of(due_ms // HOUR_MS))

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "wheel"):
            return
        assert self.wheel.pending == len(self.list.pending)
        assert sum(map(self.wheel.pending_in_hour, self.wheel.hours())) == len(self.list.pending)
        topics = Counter(due % 7 for due, _ in self.list.pending)
        assert [self.wheel.pending_of(topic) for topic in range(8)] == [topics[topic] for topic in range(8)]
        assert set(self.wheel.hours()) == set(self.list.sizes)
        assert (self.wheel.cut, self.wheel.tick) == (self.list.cut, self.list.cut.due_ms // 1000)
        assert self.wheel.local_index == self.list.local_index

    @invariant()
    @precondition(lambda self: hasattr(self, "wheel"))
    def next_due_is_never_late(self) -> None:
        due = self.wheel.next_due_ms()
        if self.list.pending:
            assert due is not None and self.list.cut.due_ms <= due <= self.list.pending[0][0]
            if not self.passed_over and MessageState.CANCELLED not in self.list.states.values():
                assert due == self.list.pending[0][0]
        else:
            assert due is None

    def teardown(self) -> None:
        self.wheel.close()
        self.way.undo()
        self.folder.cleanup()


TestTheWheelIsASortedListAcrossAnyCalls = WheelAndList.TestCase
TestTheWheelIsASortedListAcrossAnyCalls.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.parametrize(
    "way",
    WAYS,
    ids=["by cost", "along chains", "in steps", "along chains in steps", "scattered", "far", "soon full"],
)
def test_what_is_kept_in_memory_and_when_it_is_loaded_changes_no_answer(
    tmp_path: Path, way: dict[str, int], request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(collect_by(way).undo)
    random = np.random.default_rng(4)
    wheels = [Wheel(tmp_path / "roomy", ROOMY), Wheel(tmp_path / "tight", TIGHT)]
    now = START_MS
    for _ in range(60):
        due = (now + random.exponential(random.choice([500, 20_000, 4e6]), 40)).astype(np.int64).tolist()
        assert append(wheels[0], due) == append(wheels[1], due)
        now += int(random.integers(0, 30_000))
        count = int(random.integers(1, 200))
        taken = [rows(wheel.take(now, count)) for wheel in wheels]
        assert taken[0] == taken[1]
        assert wheels[0].cut == wheels[1].cut
        assert wheels[0].digest() == wheels[1].digest()


@pytest.mark.parametrize("near_messages_max", [200, 400, 1_000, 3_000])
@pytest.mark.parametrize("units_a_step", [50, 200, 1_000])
@pytest.mark.parametrize("chain_step_units", [128, 0])
def test_a_pass_or_walk_under_way_misses_nothing_that_happens_meanwhile(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    near_messages_max: int,
    units_a_step: int,
    chain_step_units: int,
) -> None:
    way = {"index_scan.CHAIN_STEP_UNITS": chain_step_units, "index_scan.CHAIN_START_UNITS": 0}
    way |= {"index_scan.BLOCK_UNITS": 8, "index_scan._WALK_UNITS": 1, "index_scan._RUN_MESSAGES": 64}
    way |= {"release._TAKE_COST": units_a_step, "release._CROWD_MESSAGES": 100}
    way |= {"release._AT_ONCE_COST": 4_000, "hour_wheel._LARGE_UNITS": 0}
    way |= {"release._AHEAD_COST": 20 * units_a_step, "release._FAR_MESSAGES_MAX": near_messages_max}
    request.addfinalizer(collect_by(way).undo)
    random = np.random.default_rng(units_a_step)
    wheel, expected = Wheel(tmp_path, WheelSettings(near_messages_max=near_messages_max)), SortedList()
    now = START_MS
    for step in range(120):
        coming = [600, 5, 40][step % 3] if step < 60 else 2
        due = (now + random.integers(0, random.choice([900, 9_000, 90_000]), coming)).tolist()
        assert append(wheel, due) == expected.append(due)
        now += int(random.choice([50, 700, 5_000, 40_000], p=[0.7, 0.2, 0.08, 0.02]))
        wheel.load_ahead(now)
        count = int(random.choice([3, 100, 10_000]))
        assert rows(wheel.take(now, count)) == expected.take(now, count)
        assert wheel.next_due_ms() == (expected.pending[0][0] if expected.pending else None)
    assert rows(wheel.take(now + HOUR_MS, 10**6)) == expected.take(now + HOUR_MS, 10**6)


def test_many_messages_of_few_seconds_come_out_sorted_in_slices(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    wheel, expected = Wheel(tmp_path, ROOMY), []
    for _ in range(40):
        due = START_MS + random.integers(0, 3_000, 1_000)
        for at, name in zip(due.tolist(), append(wheel, due.tolist()), strict=True):
            expected.append((at, *name))
    taken = []
    while slice_taken := rows(wheel.take(START_MS + 3_000, 4_096)):
        taken += slice_taken
        late = START_MS + random.integers(2_900, 3_100, 10)
        for at, name in zip(late.tolist(), append(wheel, late.tolist()), strict=True):
            if at <= START_MS + 3_000 and (at, name[1]) > wheel.cut:
                expected.append((at, *name))
    assert taken == sorted(expected)
