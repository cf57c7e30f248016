"""A group with much of everything: no turn of the event loop, and no command, grows with it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import Message

from tarry.node.feed import LOOK_UNITS_MAX, Feed
from tarry.node.lanes import Lanes
from tarry.node.leases import KEPT_MIN, Leases
from tarry.node.redrive import redrive
from tarry.node.retries import fitting
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_operator_pb2 import RedriveRequest, RedriveResponse
from tarry.replication.groups import Acknowledged
from tarry.replication.queues import Queues
from tarry.replication.ready_queue import UNIT, ReadyQueue
from tests.node.group_in_process import Group
from tests.node.group_play import labels, pass_ms, play

COMMAND_BYTES_MAX = 64 << 10
"""What a node's log takes in one command, whatever is configured."""


def fill(group: Group, count: int) -> None:
    """Put units that no filter wants into the topic's ready queue."""
    units = np.zeros(count, dtype=UNIT)
    units["due_ms"] = group.time.now_ms()
    group.machine.queues[group.queue].append(units)


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
    """Send what is handed over round again at once; return the commands for it."""
    commands: list[log_pb.RetryCommand] = []
    while group.hands["a"].held:
        offsets: defaultdict[int, list[int]] = defaultdict(list)
        for queue, offset in group.hands["a"].held:
            offsets[queue].append(offset)
        for queue, some in offsets.items():
            group.group.settling.nack("a", queue, np.array(some, dtype=np.uint64), 0)
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


@pytest.mark.parametrize(("bytes_max", "count"), [(1, 1), (3_048, 1), (3_049, 2), (10**9, 2)])
def test_records_share_a_command_as_far_as_they_fit_and_one_goes_whatever_its_size(
    bytes_max: int, count: int
) -> None:
    assert fitting(np.array([1_000, 1, 2**32 - 1], dtype=np.uint32), bytes_max) == count


def test_settled_leases_do_not_pile_up_behind_one_that_nobody_settles(tmp_path: Path) -> None:
    queue = ReadyQueue(tmp_path, 0, "t")
    queue.append(np.zeros(10 * KEPT_MIN, dtype=UNIT))
    feed = Feed(queue, Acknowledged(), Lanes(Queues(tmp_path), 0, 1))
    leases = Leases()
    for offset in range(queue.units):
        taken = np.array([offset], dtype=np.uint64)
        leases.add(feed, feed.hand(taken, "a", 1_000 + offset))
        if offset > 2:
            feed.take_back("a", taken)
    assert len(leases) <= KEPT_MIN
    assert [offsets.tolist() for _, offsets in leases.expire(5_000, 10_000)] == [[0], [1], [2]]
    queue.close()
