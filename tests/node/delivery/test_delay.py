"""A group with a delay gets each message so much later, and nothing of it earlier, whatever happens."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.node.delivery.delay import LOADED_AHEAD_MS, LOOKED_AHEAD_MS, Delay, delayed, place_of
from tarry.node.delivery.feed import WINDOW, Feed
from tarry.proto import tarry_consumer_pb2 as pb
from tarry.replication.state_machine.acknowledgements import Acknowledgements
from tarry.replication.state_machine.ready_queue import UNIT, ReadyQueue
from tests.node.delivery.feeds import column, feed_of
from tests.node.delivery.test_changed_policy import change
from tests.node.group_in_process import Group
from tests.node.group_play import MEMORY, labels, pass_ms, play

HALF_HOUR_MS = 1_800_000


def queue_of(folder: Path, due_ms: list[int]) -> ReadyQueue:
    queue = ReadyQueue(folder, 0, "t")
    units = np.zeros(len(due_ms), UNIT)
    units["due_ms"] = due_ms
    units["global_index"] = np.arange(len(due_ms))
    queue.append(units)
    return queue


def delayed_feed(folder: Path, due_ms: list[int], delay_ms: int) -> Feed:
    feed = feed_of(queue_of(folder, due_ms), Acknowledgements())
    feed.delay.ms = delay_ms
    return feed


def take(feed: Feed, now_ms: int) -> list[int]:
    """Load what may be, and take all that is due."""
    feed.load(None, now_ms)
    offsets = feed.take(now_ms, 10**9)["offset"]
    if len(offsets):
        feed.lease(offsets, "c", now_ms + 10**9)
    return [int(offset) for offset in offsets]


def test_a_message_opens_to_the_millisecond_and_the_feed_says_when(tmp_path: Path) -> None:
    feed = delayed_feed(tmp_path, [1_000, 1_000, 2_500], HALF_HOUR_MS)
    feed.load(None, 1_000)
    looks_ms = 1_000 + HALF_HOUR_MS - LOOKED_AHEAD_MS
    assert (feed.looks_ms(), feed.next_due_ms(), feed.to_look()) == (looks_ms, None, False)
    feed.load(None, looks_ms - 1)
    assert feed.next_due_ms() is None
    feed.load(None, looks_ms)
    assert feed.next_due_ms() == 1_000 + HALF_HOUR_MS
    assert take(feed, 999 + HALF_HOUR_MS) == []
    assert take(feed, 1_000 + HALF_HOUR_MS) == [0, 1]
    assert take(feed, 2_499 + HALF_HOUR_MS) == []
    assert take(feed, 2_500 + HALF_HOUR_MS) == [2]
    assert feed.looks_ms() is None


def test_what_is_delayed_for_long_is_not_loaded_and_costs_no_memory(tmp_path: Path) -> None:
    units = 400_000
    feed = delayed_feed(tmp_path, list(range(0, 100 * units, 100)), 365 * 86_400_000)
    reads: list[int] = []

    class Counted(ReadyQueue):
        __slots__ = ()

        def read(self, *args: int, **more: object) -> np.ndarray:
            reads.append(args[1])
            return ReadyQueue.read(self, *args)

    feed.queue.__class__ = Counted
    for now_ms in range(0, 100 * units, units):
        feed.load(None, now_ms)
    assert len(feed.due_of_hours(column([0]), 2**60, WINDOW)) == 0
    assert reads == [WINDOW]  # once, to find the first; not at each look
    assert sys.getsizeof(feed.delay) < 100


@pytest.mark.parametrize(("before", "after", "opens"), [(50_000, 20_000, 20_000), (50_000, 80_000, 80_000)])
def test_another_delay_counts_at_once_for_what_waits_in_memory_and_on_disk(
    tmp_path: Path, before: int, after: int, opens: int
) -> None:
    feed = delayed_feed(tmp_path, [0, 30_000], before)
    feed.load(None, 45_000)  # the first is in memory, the second is not
    assert feed.next_due_ms() == before
    feed.delay.ms = after
    times = [now_ms for now_ms in range(45_000, 200_000, 1_000) if take(feed, now_ms)]
    assert times == [max(45_000, opens), max(45_000, 30_000 + opens)]


def test_a_delay_that_is_lifted_lets_all_go_that_is_due(tmp_path: Path) -> None:
    feed = delayed_feed(tmp_path, list(range(3 * WINDOW)), HALF_HOUR_MS)
    assert take(feed, 3 * WINDOW) == []
    feed.delay.ms = 0
    assert feed.to_look()
    taken: list[int] = []
    while some := take(feed, 3 * WINDOW):
        taken += some
    assert taken == list(range(3 * WINDOW))


def test_within_the_time_that_is_loaded_the_order_is_that_of_due_times(tmp_path: Path) -> None:
    feed = delayed_feed(tmp_path, [5_000, 100, 4_000], 60_000)
    given = [(now_ms, take(feed, now_ms)) for now_ms in range(59_000, 66_000, 100)]
    assert [found for found in given if found[1]] == [(60_100, [1]), (64_000, [2]), (65_000, [0])]


@settings(max_examples=100, deadline=None)
@given(
    dues=st.lists(st.integers(0, 60_000), min_size=1, max_size=40),
    late=st.lists(st.integers(0, 30_000), min_size=40, max_size=40),
    steps=st.lists(
        st.tuples(st.integers(0, 20_000), st.sampled_from((None, 0, 1, 7_000, 30_000, 90_000))), max_size=30
    ),
)
def test_what_is_given_when_is_what_a_model_of_one_list_says(
    dues: list[int],
    late: list[int],
    steps: list[tuple[int, int | None]],
) -> None:
    """Nothing before its due time and the delay; nothing later than its release and the delay."""
    released = sorted(
        (due + wait // 3, due, number) for number, (due, wait) in enumerate(zip(dues, late, strict=False))
    )
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        compare(delayed_feed(Path(folder), [], 7_000), released, steps, len(dues))


def compare(
    feed: Feed, released: list[tuple[int, int, int]], steps: list[tuple[int, int | None]], count: int
) -> None:
    """Let the time pass step by step, messages be released, and the delay change."""
    now_ms, came, had = 0, list[tuple[int, int]](), set[int]()
    for wait_ms, delay_ms in [*steps, *[(10_000, None)] * 25]:
        now_ms += wait_ms
        while released and released[0][0] <= now_ms:
            at_ms, due_ms, _ = released.pop(0)
            units = np.zeros(1, UNIT)
            units["due_ms"] = due_ms
            feed.queue.append(units)
            came.append((at_ms, due_ms))
        feed.delay.ms = feed.delay.ms if delay_ms is None else delay_ms
        for offset in take(feed, now_ms):
            assert offset not in had
            assert now_ms >= came[offset][1] + feed.delay.ms
            had.add(offset)
        for offset, (at_ms, due_ms) in enumerate(came):
            assert offset in had or now_ms < max(due_ms, at_ms) + feed.delay.ms
    assert len(had) == count


@settings(deadline=None)
@given(
    dues=st.lists(st.integers(0, 100), max_size=60),
    acked=st.sets(st.integers(0, 59)),
    delay_ms=st.integers(0, 120),
    now_ms=st.integers(0, 150),
)
def test_delayed_are_those_that_are_due_and_wait_for_the_delay(
    dues: list[int], acked: set[int], delay_ms: int, now_ms: int
) -> None:
    known = Acknowledgements()
    known.add(column(sorted(offset for offset in acked if offset < len(dues))))
    expected = [
        offset
        for offset, due_ms in enumerate(sorted(dues))
        if due_ms <= now_ms < due_ms + delay_ms and offset not in acked
    ]
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        queue = queue_of(Path(folder), sorted(dues))
        assert delayed(queue, known, delay_ms, now_ms) == len(expected)
        assert place_of(queue, 0, now_ms) == sum(due_ms <= now_ms for due_ms in dues)


def test_a_feed_reserves_nothing_of_what_the_delay_keeps_on_disk(tmp_path: Path) -> None:
    feed = delayed_feed(tmp_path, [0] * 5 + [40_000] * 500, 20_000)
    feed.load(None, 15_000)
    assert feed.reserves(15_000, 100) == 5
    assert take(feed, 20_000) == [0, 1, 2, 3, 4]
    assert feed.reserves(20_000, 100) == 5
    feed.load(None, 55_000)
    assert feed.reserves(55_000, 100) == 105
    feed.delay.ms = 0
    assert feed.reserves(55_000, 100) == 605


def test_the_window_ahead_is_longer_than_the_time_between_looks() -> None:
    assert 0 < LOOKED_AHEAD_MS < LOADED_AHEAD_MS
    delay = Delay(60_000)
    assert delay.open(7, np.array([0, 10, 70_000]), 60_000) == 2
    assert (delay.looks_ms(7), delay.looks_ms(9)) == (None, 70_000 + 60_000 - LOOKED_AHEAD_MS)
    delay.ms = 0
    assert delay.looks_ms(9) is None


# -- with the delivery ---------------------------------------------------------------------


async def first_given(group: Group, count: int, ms: int) -> list[int]:
    """Return when each of the next messages is given, ms since now."""
    begun, times = group.time.now_ms(), list[int]()
    had = len(group.given)
    while group.time.now_ms() < begun + ms and len(times) < count:
        await pass_ms(group, 1)
        times += [group.time.now_ms() - begun] * (len(group.given) - had - len(times))
    return times


def test_one_group_gets_a_message_when_it_is_due_and_another_half_an_hour_later_by_a_timer() -> None:
    async def steps(group: Group) -> None:
        change(group, delay_ms=HALF_HOUR_MS)
        group.join("a")
        group.schedule("", 100)
        group.schedule("", 160)
        await pass_ms(group, 60)
        group.release()
        await asyncio.sleep(0.1)
        group.release()
        await asyncio.sleep((HALF_HOUR_MS - 100) / 1_000)
        await group.settle()
        assert labels(group) == []
        first_ms, second_ms = await first_given(group, 2, 300)
        assert 40 <= first_ms <= 42
        assert 100 <= second_ms <= 102

    play(steps)


def test_a_retry_is_not_delayed_again() -> None:
    async def steps(group: Group) -> None:
        change(group, delay_ms=60_000)
        group.join("a")
        group.schedule("", 0)
        await pass_ms(group, 60_001)
        assert labels(group) == ["m0"]
        assert group.settle_first("a", 1, nack=True, delay_ms=30)
        await group.settle()
        await group.commit()
        (after_ms,) = await first_given(group, 1, 1_000)
        assert after_ms <= 32
        assert [given.attempt for given in group.given] == [1, 2]

    play(steps)


def test_a_delay_that_is_changed_counts_at_once_and_nobody_has_to_come_anew() -> None:
    async def steps(group: Group) -> None:
        change(group, delay_ms=HALF_HOUR_MS)
        group.join("a")
        for _ in range(3):
            group.schedule("", 0)
        await pass_ms(group, 30_000)
        assert labels(group) == []
        change(group, delay_ms=40_000)
        assert set(await first_given(group, 3, 20_000)) <= {10_000, 10_001}
        group.schedule("", 0)
        await pass_ms(group, 20)
        change(group, delay_ms=0)
        await group.settle()
        assert labels(group)[3:] == ["m3"]

    play(steps)


def test_messages_of_a_key_keep_their_order_also_where_the_first_comes_again() -> None:
    async def steps(group: Group) -> None:
        change(group, delay_ms=20_000)
        group.join("a")
        for delay_ms in (0, 10, 20):
            group.schedule("k", delay_ms)
        await pass_ms(group, 19_990)
        assert labels(group) == []
        await pass_ms(group, 12)
        assert labels(group) == ["m0"]
        assert group.settle_first("a", 1, nack=True, delay_ms=500)
        await group.settle()
        await group.commit()
        await pass_ms(group, 400)
        assert labels(group) == ["m0"]
        for count in (2, 3, 4):
            for _ in range(200):
                await pass_ms(group, 1)
                if len(group.given) == count:
                    break
            assert group.settle_first("a", 1, nack=False)
            await group.settle()
            await group.commit()
        assert labels(group) == ["m0", "m0", "m1", "m2"]

    play(steps)


def test_the_next_leader_waits_as_well_and_marks_nothing_that_nobody_can_have_had() -> None:
    async def steps(group: Group) -> None:
        change(group, delay_ms=60_000)
        group.join("a", credit=1)
        group.schedule("", 0)
        for _ in range(50):
            group.schedule("", 30_000)
        await pass_ms(group, 30_001)
        told = group.delivery.cursors(0.0)
        assert told
        await group.fail_over(0, [])
        group.join("a", credit=100)
        await pass_ms(group, 29_900)
        assert labels(group) == []
        await pass_ms(group, 200)
        assert labels(group) == ["m0"]
        cursors = group.cursors()
        assert max(cursor.doubtful for cursor in cursors) <= 1
        await group.fail_over(0, cursors)
        group.join("a", credit=100)
        await pass_ms(group, 29_700)
        assert labels(group) == ["m0"]
        await pass_ms(group, 300)
        assert len(group.given) == 51
        assert not any(given.maybe_duplicate for given in group.given)

    play(steps)


def test_a_delivery_says_when_it_was_due_for_the_group_and_by_how_much_that_is_later() -> None:
    async def steps(group: Group) -> None:
        change(group, delay_ms=30_000)
        group.join("a")
        group.schedule("", 40)
        due_ms = group.time.now_ms() + 40
        group.release()
        await asyncio.sleep(30.042)
        consumer = group.hands["a"].consumer
        assert consumer is not None
        (response,) = consumer.take_all()
        told = pb.ConsumeResponse.FromString(response).deliveries
        assert list(told.due_ms) == [due_ms + 30_000]
        assert told.delay_ms == 30_000
        assert told.released_ms[0] < due_ms

    play(steps)
