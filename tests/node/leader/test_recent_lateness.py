"""How late releases were, against the messages themselves, sorted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.node.leader import recent_lateness
from tarry.node.leader.recent_lateness import RecentLateness
from tarry.proto import tarry_operator_pb2 as pb
from tarry.wheel.state import MARK, Taken

NOW_MS = 1_792_281_600_000

late_times = st.one_of(
    st.integers(-5_000, 0), st.integers(0, 40), st.integers(0, 100_000), st.integers(0, 2**31 - 1)
)


def taken(topic: list[int], late_ms: list[int], now_ms: int = NOW_MS) -> Taken:
    """Messages of these topics, released now."""
    due_ms = now_ms - np.array(late_ms, np.int64)
    rest = np.zeros(len(topic), np.uint32)
    return Taken(due_ms, rest, rest, np.array(topic, np.uint32), rest.astype(np.uint64))


def shares(late_ms: list[int]) -> tuple[int, int, int]:
    """Return how late half of them, 99 of 100 and all of them were at most."""
    ascending = sorted(max(0, late) for late in late_ms)
    return (*(ascending[-(-len(ascending) * percent // 100) - 1] for percent in (50, 99)), ascending[-1])


def told(of: pb.Lateness | None) -> tuple[int, int, int, int]:
    assert of is not None
    return of.released, of.p50_ms, of.p99_ms, of.max_ms


@given(st.lists(st.tuples(st.integers(0, 3), late_times), min_size=1, max_size=40), st.integers(1, 40))
def test_percentiles_are_those_of_the_messages_to_an_eighth_and_of_topics_to_twice_as_much(
    released: list[tuple[int, int]], slice_messages: int
) -> None:
    late = RecentLateness()
    for start in range(0, len(released), slice_messages):
        topics, late_ms = map(list, zip(*released[start : start + slice_messages], strict=True))
        late.add(NOW_MS, [taken(topics, late_ms), taken([], [])])
    count, *found = told(late.of_all(NOW_MS))
    wanted = shares([late_ms for _, late_ms in released])
    assert (count, found[-1]) == (len(released), wanted[-1])
    for one, exact in zip(found, wanted, strict=True):
        assert exact <= one <= exact + exact // 8
    by_topic = late.by_topic(NOW_MS)
    assert by_topic.keys() == {topic for topic, _ in released}
    for topic, of in by_topic.items():
        of_topic = [late_ms for at, late_ms in released if at == topic]
        count, *found = told(of)
        wanted = shares(of_topic)
        assert (count, found[-1]) == (len(of_topic), wanted[-1])
        for one, exact in zip(found, wanted, strict=True):
            assert exact <= one <= 2 * exact


def test_what_was_released_longer_than_a_minute_ago_counts_no_more() -> None:
    late = RecentLateness()
    for second in range(100):
        late.add(NOW_MS + 1_000 * second, [taken([1], [second], NOW_MS + 1_000 * second)])
        count, _, _, longest_ms = told(late.of_all(NOW_MS + 1_000 * second))
        assert (count, longest_ms) == (min(60, second + 1), second)
    end_ms = NOW_MS + 99_000
    assert told(late.of_all(end_ms + 58_000)) == (2, 99, 99, 99)
    assert 50 <= told(late.by_topic(end_ms)[1])[0] <= 60
    assert late.of_all(end_ms + 60_000) is None
    assert late.by_topic(end_ms + 60_000) == {}
    late.add(end_ms + 10**9, [taken([1], [7], end_ms + 10**9)])  # after a rest of days
    assert told(late.of_all(end_ms + 10**9)) == (1, 7, 7, 7)


def test_marked_topics_are_the_same_and_a_release_of_nothing_is_none() -> None:
    late = RecentLateness()
    late.add(NOW_MS, [])
    late.add(NOW_MS, [taken([], [])])
    assert late.of_all(NOW_MS) is None
    late.add(NOW_MS, [taken([3, 3 | int(MARK)], [0, 0])])
    assert {queue: told(of) for queue, of in late.by_topic(NOW_MS).items()} == {3: (2, 0, 0, 0)}


def test_more_topics_than_have_room_are_told_of_once_others_have_been_quiet_for_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recent_lateness, "TOPICS_MAX", 3)
    late = RecentLateness()
    late.add(NOW_MS, [taken([10, 20, 10_000, 40, 10], [1, 2, 3, 4, 5])])
    assert sorted(late.by_topic(NOW_MS)) == [10, 20, 40]  # the lowest of those that come together
    late.add(NOW_MS + 30_000, [taken([20, 10_000], [6, 7], NOW_MS + 30_000)])
    assert told(late.by_topic(NOW_MS + 30_000)[20]) == (2, 2, 6, 6)
    later_ms = NOW_MS + 61_000
    late.add(later_ms, [taken([10_000, 10_000], [8, 9], later_ms)])
    assert {queue: told(of)[0] for queue, of in late.by_topic(later_ms).items()} == {20: 1, 10_000: 2}
    assert told(late.of_all(later_ms)) == (4, 7, 9, 9)
