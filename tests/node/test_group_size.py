"""A group with much of everything: no turn of the event loop, and no command, grows with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tarry.node.feed import LOOK_UNITS_MAX, Feed
from tarry.node.lanes import Lanes
from tarry.node.leases import KEPT_MIN, Leases
from tarry.proto import tarry_log_pb2 as log_pb
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
    assert [offsets.tolist() for _, offsets in leases.expire(5_000)] == [[0], [1], [2]]
    queue.close()
