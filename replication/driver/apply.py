"""Application of committed entries: each reaches the machine once, in order, and its proposer is answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tarry.proto.tarry_log_pb2 import LogEntry
from tarry.replication.driver.proposals import Proposals
from tarry.replication.journal.records import is_regular
from tarry.replication.replica import Replica


class Machine(Protocol):
    """State machine that the log is applied to."""

    @property
    def applied_index(self) -> int:
        """Of the state as recovered; entries up to it are skipped."""

    def apply(self, index: int, term: int, commands: Sequence[bytes]) -> Sequence[Any]:
        """Apply an entry; return the outcome of each command, in order.

        Called for every index, without commands for entries of consensus itself. Total: an exception ends
        the process.
        """


class Applier:
    def __init__(self, replica: Replica, machine: Machine, proposals: Proposals) -> None:
        self._replica = replica
        self._machine = machine
        self._proposals = proposals

    @property
    def _limit(self) -> int:
        return min(self._replica.consensus.state.commit_index, self._replica.journal.durable_index)

    @property
    def due(self) -> bool:
        """True if there is anything to apply."""
        return self._replica.applied < self._limit

    def apply(self) -> None:
        """Apply what is committed and durable here, for as long as the budget lasts."""
        replica, journal = self._replica, self._replica.journal
        limit = self._limit
        if replica.applied >= limit:
            return
        began = replica.now()
        stop = began + replica.settings.apply_budget_ms / 1000
        while replica.applied < limit:
            entry = journal.entry(replica.applied + 1)
            payload, index, term = entry
            commands = LogEntry.FromString(payload[1:]).commands if is_regular(entry) else ()
            outcomes = self._machine.apply(index, term, commands)
            replica.applied = index
            deferred = index <= replica.consensus.log_replication.deferred_to
            synced = replica.flush_ms() == 0  # by now: it may have been async when this was proposed
            proposed = self._proposals.applied(index, term, outcomes, deferred=deferred, synced=synced)
            now = replica.now()
            replica.timings.apply.add(now - began)
            if proposed is not None:
                replica.timings.commit.add(now - proposed)
            if now >= stop:
                break
            began = now
        replica.consensus.applied(replica.applied)
        if self._proposals.waiting:
            replica.wake.set()
