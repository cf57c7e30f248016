"""A heartbeat tells some of the groups that have changed anew, and of the others what a new leader needs."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tarry.node.config import Limits
from tarry.node.delivery import delivery
from tarry.node.delivery.consumer import Consumer
from tarry.node.delivery.failover_cursors import cursors
from tarry.node.delivery.feed import Feed
from tarry.node.delivery.leases import Leases
from tarry.node.delivery.ordering import Lanes
from tarry.proto import tarry_consumer_pb2 as pb
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_consumer_pb2 import GroupStart
from tarry.replication.state_machine.acknowledgements import Acknowledgements
from tarry.replication.state_machine.queues import Queues
from tarry.replication.state_machine.ready_queue import UNIT, ReadyQueue
from tests import turns
from tests.node.group_in_process import OVER, TOPIC, Group
from tests.node.group_play import pass_ms, play
from tests.node.test_cost import counted


def open_groups(group: Group, count: int) -> list[Consumer]:
    """Open so many groups of one consumer each."""
    consumers = []
    for name in (f"g{number}" for number in range(count)):
        made = group.apply(log_pb.SubscribeCommand(topic=TOPIC, group=name))
        consumers.append(Consumer(name="a", topic=TOPIC, group=name, lease_ms=1_000, credit=5))
        opened = group.delivery.group(TOPIC, name, made.queue, made.retry_queue)
        opened.join(consumers[-1])
        opened.pump()
    return consumers


def offsets(group: Group, raw: bytes) -> list[int]:
    """Return the offset that is told of each group of ``open_groups``, in their order."""
    told = log_pb.DispatchState.FromString(raw).cursors
    return [one.offset for one in told if one.group.startswith("g") and one.queue == group.queue][1:]


def test_groups_are_told_anew_in_the_order_of_their_changes_some_in_each_heartbeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def steps(group: Group) -> None:
        open_groups(group, 5)
        group.delivery.cursors(1.0)
        monkeypatch.setattr(delivery, "GROUPS_SERIALIZED_MAX", 2)
        group.schedule("", 0)
        await pass_ms(group, 1)
        assert offsets(group, group.delivery.cursors(2.0)) == [1, 0, 0, 0, 0]  # with the group of the play
        assert offsets(group, group.delivery.cursors(3.0)) == [1, 1, 1, 0, 0]
        assert offsets(group, group.delivery.cursors(4.0)) == [1, 1, 1, 1, 1]
        assert not group.delivery._changed

    play(steps)


def test_what_was_delivered_since_it_was_told_is_marked_when_the_next_leader_delivers_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def steps(group: Group) -> None:
        before = open_groups(group, 5)
        group.delivery.cursors(1.0)
        monkeypatch.setattr(delivery, "GROUPS_SERIALIZED_MAX", 1)
        group.schedule("", 0)
        await pass_ms(group, 1)
        assert all(consumer.take_all() for consumer in before)
        known = log_pb.DispatchState.FromString(group.delivery.cursors(2.0)).cursors
        await group.fail_over(0, known)
        again = open_groups(group, 5)
        await pass_ms(group, 1_100)
        for consumer in again:
            (raw,) = consumer.take_all()
            given = pb.ConsumeResponse.FromString(raw).deliveries
            assert list(given.maybe_duplicate) == [0]

    play(steps)


def test_a_group_that_has_delivered_more_than_was_told_is_told_whatever_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def steps(group: Group) -> None:
        open_groups(group, 5)
        monkeypatch.setattr(delivery, "GROUPS_SERIALIZED_MAX", 0)
        group.delivery.cursors(1.0)
        group.schedule("", 0)
        await pass_ms(group, 1)
        assert offsets(group, group.delivery.cursors(2.0)) == [1] * 5

    play(steps)


def test_once_no_more_is_delivered_and_once_it_is_again_every_group_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def steps(group: Group) -> None:
        open_groups(group, 5)
        group.delivery.cursors(1.0)
        monkeypatch.setattr(delivery, "GROUPS_SERIALIZED_MAX", 4)

        def reserved(raw: bytes) -> list[bool]:
            told = log_pb.DispatchState.FromString(raw).cursors
            return [cursor.doubtful > 0 for cursor in told if cursor.queue == group.queue]

        assert reserved(group.delivery.cursors(1.0)) == [True] * 6
        assert reserved(group.delivery.cursors(None)) == [False] * 4 + [True] * 2
        assert reserved(group.delivery.cursors(None)) == [False] * 6
        assert reserved(group.delivery.cursors(2.0)) == [True] * 4 + [False] * 2
        assert reserved(group.delivery.cursors(3.0)) == [True] * 6

    play(steps)


def test_a_turn_that_tells_of_many_groups_has_no_room_for_deliveries_nor_for_the_end() -> None:
    async def steps(group: Group) -> None:
        consumers = open_groups(group, delivery.TURN_GROUPS_SERIALIZED_MAX)
        await pass_ms(group, 1)
        group.delivery.cursors(1.0)
        group.schedule("", 0)
        assert not any(consumer.outgoing_bytes for consumer in consumers)
        await pass_ms(group, 1)
        assert all(consumer.take_all() for consumer in consumers)
        pausing = asyncio.ensure_future(group.delivery.pause())
        group.delivery.cursors(None)
        await asyncio.sleep(0)
        assert not pausing.done()
        await pausing
        group.schedule("", 0)
        await pass_ms(group, 1)
        assert not any(consumer.outgoing_bytes for consumer in consumers)

    play(steps)


def lines_of_groups(count: int) -> Counter[str]:
    """Return the lines run by heartbeats and by the end, with so many groups that have all changed."""
    lines: Counter[str] = Counter()

    async def steps(group: Group) -> None:
        open_groups(group, count)
        for step, sent_s in (("opened", 1.0), ("changed", 2.0), ("no more is delivered", None)):
            group.delivery.pump()
            await asyncio.sleep(1)
            assert len(group.delivery._changed) > count
            with counted(lines, step):
                group.delivery.cursors(sent_s)
        with counted(lines, "end"):
            group.delivery.end(OVER)

    play(steps)
    return lines


def test_a_heartbeat_and_the_end_look_at_no_more_groups_than_are_told_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivery, "GROUPS_SERIALIZED_MAX", 5)
    monkeypatch.setattr(delivery, "TURN_GROUPS_STOPPED_MAX", 5)
    assert lines_of_groups(50) == lines_of_groups(100)


def lines_of_callers(folder: Path, count: int) -> Counter[str]:
    """Return the lines run to tell of so many consumers without a stream, each with a message in flight."""
    queue, lines, leases = ReadyQueue(folder / str(count), 0, "t"), Counter[str](), Leases()
    queue.append(np.zeros(count, dtype=UNIT))
    feed = Feed(queue, Acknowledgements(), Lanes(Queues(Path()), 0, 1))
    for offset in range(count):
        leases.add(feed, feed.lease(np.array([offset], dtype=np.uint64), f"c{offset}", 1_000))
    with counted(lines, "told"):
        (cursor,) = cursors("g", {0: feed}, leases, (), {}, 10)
    assert len(cursor.leases) == 10
    assert cursor.consumers
    queue.close()
    return lines


def test_of_however_many_consumers_without_a_stream_a_heartbeat_looks_at_no_more(tmp_path: Path) -> None:
    assert lines_of_callers(tmp_path, 2_000) == lines_of_callers(tmp_path, 4_000)


def test_the_last_cursors_of_as_many_groups_as_there_may_be_take_no_long_turn() -> None:
    count = Limits().queues_max - 1

    async def steps(group: Group) -> None:
        queues = group.machine.queues
        for name in (f"g{number}" for number in range(count)):
            queues.subscribe(TOPIC, name, GroupStart())
            group.delivery.group(TOPIC, name, group.queue, queues.of(TOPIC, name).queue)
        assert len(group.delivery._changed) == count + 1

        def tell() -> None:
            group.delivery._reserves = True  # as before the first that says that nothing more is delivered
            assert len(log_pb.DispatchState.FromString(group.delivery.cursors(None)).cursors) == 2 * (
                count + 1
            )

        assert turns.cpu_s(tell) < turns.bound_s()

    play(steps)
