"""Commands that wait to be proposed, and those under way."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from tarry.proto.tarry_log_pb2 import LogEntry
from tarry.replication.errors import CommandTooLarge, NotLeader, Overloaded, Unknown
from tarry.replication.journal.records import entry_payload
from tarry.replication.raft.consensus import Consensus
from tarry.replication.raft.elections import ConsensusViolated
from tarry.replication.settings import ReplicationSettings

Answers = list[asyncio.Future[Any]]


class Proposals:
    """Waiting commands become entries, as many as fit each; entries are answered when applied here."""

    def __init__(self, settings: ReplicationSettings) -> None:
        self._settings = settings
        self._waiting: deque[tuple[bytes, int, asyncio.Future[Any]]] = deque()
        self._waiting_bytes = self._waiting_cost_us = 0
        # by index: term, size in bytes, when it was proposed, answers
        self._under_way: dict[int, tuple[int, int, float, Answers]] = {}
        self._under_way_bytes = 0
        self._to_flush: set[asyncio.Future[Any]] = set()  # answers that wait for a majority's flush, too
        self._unflushed: deque[tuple[int, asyncio.Future[Any], Any]] = deque()  # of entries that are applied

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def put(
        self, command: bytes, answer: asyncio.Future[Any], cost_us: int = 0, *, flushed: bool = False
    ) -> None:
        """Add a command; `cost_us`: estimated time to apply it.

        `flushed`: the answer waits until a majority has flushed the entry, whatever the durability.
        Raises CommandTooLarge, Overloaded.
        """
        settings = self._settings
        if len(command) > settings.command_bytes_max:
            raise CommandTooLarge(f"{len(command)} bytes; at most {settings.command_bytes_max}")
        full = self._waiting_bytes + len(command) > settings.waiting_bytes_max
        if full or len(self._waiting) >= settings.waiting_commands_max:
            raise Overloaded(settings.overload_retry_ms)
        self._waiting.append((command, cost_us, answer))
        if flushed:
            self._to_flush.add(answer)
            answer.add_done_callback(self._to_flush.discard)
        self._waiting_bytes += len(command)
        self._waiting_cost_us += cost_us

    def take(self) -> tuple[bytes, Answers]:
        """Return a serialized LogEntry of what has waited longest, and its answers. Something must wait."""
        commands: list[bytes] = []
        answers: Answers = []
        room_bytes, room_us = self._settings.entry_bytes_max, self._settings.entry_cost_us_max
        while self._waiting and len(commands) < self._settings.entry_commands_max:
            command, cost_us, answer = self._waiting[0]
            if commands and (len(command) > room_bytes or cost_us > room_us):
                break
            self._waiting.popleft()
            self._waiting_bytes -= len(command)
            self._waiting_cost_us -= cost_us
            room_bytes -= len(command)
            room_us -= cost_us
            if not answer.cancelled():  # given up before it was proposed
                commands.append(command)
                answers.append(answer)
        return LogEntry(commands=commands).SerializeToString(), answers

    def _in_flight_max(self) -> int:
        """Return the bound on entries in flight: small ones cost as much as large ones, so few may be."""
        settings = self._settings
        enough = (
            self._waiting_bytes >= settings.entry_bytes_worth
            or self._waiting_cost_us >= settings.entry_cost_us_max
        )
        return settings.entries_in_flight_max if enough else settings.small_entries_in_flight_max

    def _may_be_under_way(self) -> bool:
        """Return whether there is room for another entry in flight."""
        few_bytes = self._under_way_bytes < self._settings.entries_in_flight_bytes
        return few_bytes and len(self._under_way) < self._in_flight_max()

    def propose(self, consensus: Consensus, now: float) -> bool:
        """Propose as many entries as one turn and the bound in flight allow, if this replica may propose.

        Return whether only the turn had no more room: then the next one goes on.
        """
        proposed_bytes = 0
        while self._waiting and self._may_be_under_way() and consensus.heartbeats.may_propose(now):
            if proposed_bytes and proposed_bytes + len(self._waiting[0][0]) > self._settings.turn_bytes_max:
                return True
            commands, answers = self.take()
            if not answers:
                continue
            index = consensus.append(entry_payload(commands))
            if index is None:
                raise ConsensusViolated("the engine refused a proposal while it leads")
            if self._to_flush and not self._to_flush.isdisjoint(answers):
                consensus.log_replication.demand_flush(index)
            self.proposed(index, consensus.state.term, answers, len(commands), now)
            proposed_bytes += len(commands)
        return False

    def proposed(self, index: int, term: int, answers: Answers, size_bytes: int, now: float) -> None:
        """Note an entry that is proposed now; its answers come once it is applied."""
        self._under_way[index] = (term, size_bytes, now, answers)
        self._under_way_bytes += size_bytes

    def applied(
        self,
        index: int,
        term: int,
        outcomes: Sequence[Any],
        *,
        deferred: bool = False,
        synced: bool = True,
    ) -> float | None:
        """Answer the proposers of an entry that is applied; return when it was proposed, if it was here.

        `deferred`: it may have been committed before a majority has flushed it: then answers wait for that
        which ask for it, and all where the durability is `synced`.
        """
        proposed = self._under_way.pop(index, None)
        if proposed is None:
            return None
        proposed_term, size_bytes, proposed_s, answers = proposed
        self._under_way_bytes -= size_bytes
        if proposed_term != term:  # another leader's entry took the place: ours can never be committed
            _refuse(answers, NotLeader(None))
            return None
        for answer, outcome in zip(answers, outcomes, strict=False):
            if deferred and (synced or answer in self._to_flush):
                self._unflushed.append((index, answer, outcome))
            elif not answer.done():
                answer.set_result(outcome)
        return proposed_s

    @property
    def awaits_flush(self) -> bool:
        """True if an answer waits for nothing but a majority's flush."""
        return bool(self._unflushed)

    def flushed(self, index: int) -> None:
        """Answer the proposers of the applied entries up to one that a majority has flushed."""
        while self._unflushed and self._unflushed[0][0] <= index:
            _, answer, outcome = self._unflushed.popleft()
            if not answer.done():
                answer.set_result(outcome)

    def lose_leadership(self, leader: str | None) -> None:
        waiting, self._waiting = self._waiting, deque()
        self._waiting_bytes = self._waiting_cost_us = 0
        under_way, self._under_way, self._under_way_bytes = self._under_way, {}, 0
        _refuse([answer for _, _, answer in waiting], NotLeader(leader))
        unflushed, self._unflushed = self._unflushed, deque()
        lost = Unknown("leadership was lost before a majority had flushed the command")
        _refuse([answer for _, answer, _ in unflushed], lost)
        for *_, answers in under_way.values():
            _refuse(answers, Unknown("leadership was lost while the command was under way"))


def _refuse(answers: Answers, refusal: Exception) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(refusal)
