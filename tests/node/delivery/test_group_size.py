"""A group with much of everything: no turn of the event loop, and no command, grows with it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import Message

from tarry.node.delivery.feed import LOOK_UNITS_MAX, Feed
from tarry.node.delivery.group import TURN_HOURS_MAX, TURN_MESSAGES_MAX
from tarry.node.delivery.leases import KEPT_MIN, Leases
from tarry.node.delivery.offset_pieces import PIECE_BLOCKS
from tarry.node.delivery.ordering import Lanes
from tarry.node.delivery.redrive import redrive
from tarry.node.delivery.retries import Delay, fitting
from tarry.node.delivery.settlement import COMMIT_OFFSETS_MAX, COPY_BLOCKS_MAX, RETRIES_MAX
from tarry.proto import tarry_consumer_pb2 as pb
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_operator_pb2 import RedriveRequest, RedriveResponse
from tarry.replication.state_machine.acknowledgements import Acknowledgements
from tarry.replication.state_machine.queue_checksums import BLOCK_UNITS
from tarry.replication.state_machine.queues import Queues
from tarry.replication.state_machine.ready_queue import UNIT, ReadyQueue
from tarry.wheel.state import HOUR_MS
from tests.node.group_in_process import TOPIC, Group
from tests.node.group_play import labels, pass_ms, play, poll

COMMAND_BYTES_MAX = 64 << 10
"""What a node's log takes in one command, whatever is configured."""


def fill(group: Group, count: int, queue: int | None = None) -> None:
    """Put units that no filter wants into a queue, the topic's ready queue if none is named."""
    units = np.zeros(count, dtype=UNIT)
    units["due_ms"] = group.time.now_ms()
    group.machine.queues[group.queue if queue is None else queue].append(units)


def test_a_filter_over_a_backlog_looks_at_so_much_in_a_turn_and_says_so_in_small_commands() -> None:
    async def steps(group: Group) -> None:
        backlog = 3 * LOOK_UNITS_MAX
        group.join("a", tags=["red"])
        fill(group, backlog)
        group.schedule("", 0, ["red"])
        group.release()
        turns = []
        while not group.given:
            await group.settle()
            commands = [command for command, _ in group.log]
            assert all(command.ByteSize() <= COMMAND_BYTES_MAX for command in commands)
            turns.append(sum(len(c.offset) // 8 for c in commands if isinstance(c, log_pb.AckCommand)))
            await group.commit()
            await pass_ms(group, 1)
        assert sum(turns) == backlog
        assert max(turns) <= LOOK_UNITS_MAX
        assert labels(group) == ["m0"]
        assert group.machine.queues.acknowledged["g", group.queue].floor == backlog

    play(steps)


async def nack_all(group: Group) -> list[log_pb.RetryCommand]:
    """Send what is delivered round again at once; return the commands for it."""
    commands: list[log_pb.RetryCommand] = []
    while group.hands["a"].held:
        offsets: defaultdict[int, list[int]] = defaultdict(list)
        for queue, offset in group.hands["a"].held:
            offsets[queue].append(offset)
        for queue, some in offsets.items():
            group.group.settlement.nack("a", queue, np.array(some, dtype=np.uint64), Delay(0))
        group.hands["a"].held.clear()
        await group.settle()
        while group.log:
            commands += [command for command, _ in group.log if isinstance(command, log_pb.RetryCommand)]
            await group.commit()
        await pass_ms(group, 1)
    return commands


def test_what_is_nacked_at_once_is_retried_buried_and_redriven_by_commands_of_bounded_size() -> None:
    async def steps(group: Group) -> None:
        messages, each = 300, 20_000
        group.join("a", credit=10 * messages)
        for _ in range(messages):
            group.schedule("", 0, extra_bytes=each)
        most = group.config.limits.retries_bytes_max
        assert messages * each > 5 * most
        await pass_ms(group, 1)
        commands = await nack_all(group)
        assert all(command.ByteSize() <= most for command in commands)
        assert sum(len(command.records) for command in commands) == 3 * messages
        assert set(map(str, group.places().values())) == {"['dead']"}
        group.release()
        sizes: list[int] = []

        async def propose(command: Message) -> Any:
            sizes.append(command.ByteSize())
            return group.apply(command)

        request = RedriveRequest(topic="dlq.g.t")
        progress = redrive(group.machine, group.damage, propose, group.time.now_ms, request, most)
        *_, last = [step async for step in progress]
        assert isinstance(last, RedriveResponse)
        assert (last.redriven, last.looked_at, last.done) == (messages, messages, True)
        assert most // 2 < max(sizes) <= most

    play(steps)


@pytest.mark.parametrize(
    ("count", "body_bytes", "hours", "first"),
    [
        (TURN_MESSAGES_MAX + 900, 10, 1, TURN_MESSAGES_MAX),
        (200, 100_000, 1, 50),  # by responses of ten
        (2 * TURN_HOURS_MAX, 10, 2 * TURN_HOURS_MAX, TURN_HOURS_MAX),
    ],
    ids=["messages", "bytes", "hours"],
)
def test_a_turn_delivers_so_much_and_the_next_ones_the_rest(
    count: int, body_bytes: int, hours: int, first: int
) -> None:
    async def steps(group: Group) -> None:
        now_ms = group.time.now_ms()
        record = Record(body=bytes(body_bytes)).SerializeToString()
        due_ms = now_ms - np.arange(count, 0, -1) * hours // count * HOUR_MS
        columns = log_pb.ScheduleColumns(topics=[TOPIC], due_ms=due_ms.tobytes(), records=[record] * count)
        group.apply(log_pb.ScheduleCommand(now_ms=int(due_ms[0]), request=columns))
        group.apply(log_pb.ReleaseCommand(until_ms=now_ms, count=count, now_ms=now_ms))
        group.show_applied()
        for name in "abc":
            group.join(name, credit=0)
        consumers = [hand.consumer for hand in group.hands.values() if hand.consumer is not None]
        for consumer in consumers:
            consumer.credit = count
        turns = []
        while sum(turns) < count:
            group.group.pump()
            await asyncio.sleep(0)
            taken = [response for consumer in consumers for response in consumer.take_all()]
            responses = map(pb.ConsumeResponse.FromString, taken)
            turns.append(sum(len(response.deliveries.offset) for response in responses))
        assert 0.75 * first <= turns[0] <= first
        assert max(turns) <= first
        assert sum(turns) == count

    play(steps)


def test_small_copies_share_a_command_up_to_so_many() -> None:
    async def steps(group: Group) -> None:
        messages = RETRIES_MAX + 100
        group.join("a", credit=10 * messages)
        for _ in range(messages):
            group.schedule("", 0)
        await pass_ms(group, 1)
        sizes = [len(command.records) for command in (await nack_all(group))[:2]]
        assert sizes == [RETRIES_MAX, 100]

    play(steps)


def test_a_retry_takes_the_part_of_a_turn_that_its_bytes_do() -> None:
    async def steps(group: Group) -> None:
        group.join("a", credit=2)
        for extra_bytes in (0, 300_000):
            group.schedule("", 0, extra_bytes=extra_bytes)
        await pass_ms(group, 1)
        settlement, feed = group.group.settlement, group.group.feeds[group.queue]
        shares = []
        for offset in (0, 1):
            sized = settlement._sized(feed, np.array([offset], np.uint64))
            assert sized is not None
            shares.append(sized[1])
        assert shares[0] == 1 / RETRIES_MAX
        assert 0.25 < shares[1] < 0.4  # of 1 MiB

    play(steps)


def test_a_retry_of_many_ends_with_its_topic() -> None:
    async def steps(group: Group) -> None:
        messages = 3 * RETRIES_MAX
        group.join("a", credit=messages)
        for _ in range(messages):
            group.schedule("", 0)
        await pass_ms(group, 1)
        offsets = np.array([offset for _, offset in group.hands["a"].held], dtype=np.uint64)
        group.group.settlement.nack("a", group.queue, offsets, Delay(0))
        await group.settle()
        assert [len(command.records) for command, _ in group.log] == [RETRIES_MAX]  # type: ignore[attr-defined]
        group.apply(log_pb.DeleteTopicCommand(topic=TOPIC))
        await group.commit()
        assert group.log == []

    play(steps)


def test_acks_gather_up_to_so_many_offsets_and_what_is_beyond_goes_next() -> None:
    async def steps(group: Group) -> None:
        each, requests = COMMIT_OFFSETS_MAX * 2 // 3, 5
        fill(group, requests * each)
        feed, settling = group.group.feeds[group.queue], group.group.settlement
        own = [np.arange(at * each, (at + 1) * each, dtype=np.uint64) for at in range(requests)]
        for offsets in own:
            feed.lease(offsets, "a", group.time.now_ms() + 60_000)
        answers = [settling.ack("a", group.queue, offsets) for offsets in own]
        flights = []
        await group.settle()
        while group.log:
            commands = [command for command, _ in group.log]
            assert all(command.ByteSize() <= COMMAND_BYTES_MAX for command in commands)
            flights.append(sum(len(command.offset) // 8 for command in commands))  # type: ignore[attr-defined]
            await group.commit()
        assert flights == [2 * each, 2 * each, each]
        assert [(await answer).tolist() for answer in answers] == [[]] * requests  # type: ignore[misc]

    play(steps)


@pytest.mark.parametrize("of_retries", [False, True])
def test_a_command_that_acknowledges_is_of_few_blocks_of_a_queue(of_retries: bool) -> None:
    async def steps(group: Group) -> None:
        queue = group.retry_queue if of_retries else group.queue
        blocks_max = COPY_BLOCKS_MAX if of_retries else PIECE_BLOCKS
        fill(group, (2 * blocks_max + 1) * BLOCK_UNITS, queue)
        offsets = np.arange(0, group.machine.queues[queue].units, BLOCK_UNITS, dtype=np.uint64)
        group.group.feeds[queue].lease(offsets, "a", group.time.now_ms() + 60_000)
        answer = group.group.settlement.ack("a", queue, offsets)
        sizes = []
        await group.settle()
        while group.log:
            sizes += [len(command.offset) // 8 for command, _ in group.log]  # type: ignore[attr-defined]
            await group.commit()
        assert sizes == [blocks_max, blocks_max, 1]
        assert (await answer).tolist() == []  # type: ignore[misc]

    play(steps)


def test_a_command_that_retries_is_of_few_blocks_of_a_queue() -> None:
    async def steps(group: Group) -> None:
        group.schedule("", 0)
        group.release()
        queue = group.machine.queues[group.queue]
        queue.append(np.repeat(queue.read(0, 1), (2 * PIECE_BLOCKS + 1) * BLOCK_UNITS))
        offsets = np.arange(0, queue.units, BLOCK_UNITS, dtype=np.uint64)
        group.group.feeds[group.queue].lease(offsets, "a", group.time.now_ms() + 60_000)
        group.group.settlement.nack("a", group.queue, offsets, Delay(3_600_000))
        sizes = []
        await group.settle()
        while group.log:
            sizes += [len(command.records) for command, _ in group.log]  # type: ignore[attr-defined]
            await group.commit()
        assert sizes == [PIECE_BLOCKS, PIECE_BLOCKS, 2]

    play(steps)


def test_a_retry_that_came_while_a_filter_passed_over_much_goes_out_once_that_is_committed() -> None:
    async def steps(group: Group) -> None:
        group.join("a", tags=["red"])
        group.schedule("", 0, ["red"])
        await pass_ms(group, 1)
        group.settle_first("a", 1, nack=True, delay_ms=100)
        await group.settle()
        await group.commit()
        fill(group, LOOK_UNITS_MAX)
        group.group.pump()
        await group.settle()
        await pass_ms(group, 90)
        await pass_ms(group, 20)
        assert group.group.settlement.passing == LOOK_UNITS_MAX
        assert group.machine.queues[group.retry_queue].units == 1
        assert labels(group) == ["m0"]
        await group.commit()
        assert labels(group) == ["m0", "m0"]

    play(steps)


def test_leases_that_end_together_share_commands() -> None:
    async def steps(group: Group) -> None:
        messages = RETRIES_MAX + 100
        for _ in range(messages):
            group.schedule("", 0)
        group.release()
        for at in range(messages):
            poll(group, f"c{at}", 1_000, credit=1)
            await asyncio.sleep(0)
        assert len(group.given) == messages
        await pass_ms(group, 1_001)
        sizes = []
        while group.log:
            sizes += [len(command.records) for command, _ in group.log]  # type: ignore[attr-defined]
            await group.commit()
        assert sizes == [RETRIES_MAX, 100]
        assert set(map(str, group.places().values())) == {"['retry']"}

    play(steps)


@pytest.mark.parametrize(("bytes_max", "count"), [(1, 1), (3_048, 1), (3_049, 2), (10**9, 2)])
def test_records_share_a_command_as_far_as_they_fit_and_one_goes_whatever_its_size(
    bytes_max: int, count: int
) -> None:
    assert fitting(np.array([1_000, 1, 2**32 - 1], dtype=np.uint32), bytes_max) == count


def test_settled_leases_do_not_pile_up_behind_one_that_nobody_settles(tmp_path: Path) -> None:
    queue = ReadyQueue(tmp_path, 0, "t")
    queue.append(np.zeros(10 * KEPT_MIN, dtype=UNIT))
    feed = Feed(queue, Acknowledgements(), Lanes(Queues(tmp_path), 0, 1))
    leases = Leases()
    for offset in range(queue.units):
        taken = np.array([offset], dtype=np.uint64)
        leases.add(feed, feed.lease(taken, "a", 1_000 + offset))
        if offset > 2:
            feed.take_back("a", taken)
    assert len(leases) <= KEPT_MIN
    assert [offsets.tolist() for _, offsets in leases.expire(5_000, 10_000)] == [[0], [1], [2]]
    queue.close()
