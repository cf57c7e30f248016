"""Committed entries reach the machine in order, once, a turn's worth at a time; an error ends it all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tarry.proto.tarry_log_pb2 import LogEntry
from tarry.replication.blocking import in_thread
from tarry.replication.driver.apply import Applier
from tarry.replication.driver.proposals import Proposals
from tarry.replication.journal.records import entry_payload
from tarry.replication.raft.membership import Membership
from tarry.replication.replica import Replica
from tests.replication.lone_consensus import Lone, answer_heartbeats, commit_all


class Slow:
    """A machine that takes 2 ms for an entry, and fails at one."""

    def __init__(self, lone: Lone, fails_at: int = 0) -> None:
        self.applied_index = 0
        self.applied: list[bytes] = []
        self._lone = lone
        self._fails_at = fails_at

    def apply(self, index: int, term: int, commands: Sequence[bytes]) -> Sequence[None]:
        if index == self._fails_at:
            raise OSError("the disk is broken")
        self._lone.clock.now += 0.002
        self.applied.extend(commands)
        return [None] * len(commands)


def backlog(entries: int) -> tuple[Lone, Replica]:
    """A leader all of whose entries are committed, and none applied."""
    lone = Lone()
    lone.lead()
    for number in range(entries):
        lone.consensus.append(entry_payload(LogEntry(commands=[b"%d" % number]).SerializeToString()))
    lone.settle()
    answer_heartbeats(lone, "n2", "n3")
    commit_all(lone)
    replica = Replica(
        node="n1",
        journal=lone.journal,
        membership=Membership(lone.journal, lone.members),
        consensus=lone.consensus,
        clock=lone.clock,
        settings=lone.settings,
        run_blocking=in_thread,
        applied=0,
    )
    return lone, replica


def test_a_backlog_is_applied_a_budget_at_a_time_so_that_heartbeats_go_out_between() -> None:
    lone, replica = backlog(20)
    machine = Slow(lone)
    applying = Applier(replica, machine, Proposals(lone.settings))
    turns = 0
    while replica.applied < lone.journal.last_index:
        before = replica.applied
        applying.apply()
        assert replica.applied - before <= 3  # 5 ms, at 2 ms each
        turns += 1
    assert turns > 6
    assert machine.applied == [b"%d" % number for number in range(20)]


def test_an_entry_that_cannot_be_applied_is_not_passed_over() -> None:
    lone, replica = backlog(3)
    machine = Slow(lone, fails_at=lone.journal.last_index - 1)
    applying = Applier(replica, machine, Proposals(lone.settings))
    with pytest.raises(OSError, match="broken"):
        for _ in range(5):
            applying.apply()
    assert replica.applied == lone.journal.last_index - 2
    assert machine.applied == [b"0"]


async def test_a_read_waits_until_all_that_is_committed_is_applied() -> None:
    lone, replica = backlog(20)
    reading = asyncio.ensure_future(replica.read_barrier())
    applying = Applier(replica, Slow(lone), Proposals(lone.settings))
    while replica.applied < lone.journal.last_index:
        await asyncio.sleep(0)
        assert not reading.done()
        applying.apply()
        replica.end_turn()
    await reading
