"""One replica's consensus on one asyncio event loop.

    wait ─► inbound + proposals ─► tick ─► appends leave ─► journal.write in a thread ─► the rest leaves
                                              apply what was durable before ┘   └─► apply ─► answer

What rests on the journal (votes, answers, our own count towards a commit) leaves only after the write.
A leader's appends may leave before: they promise nothing (dissertation §10.2.1).
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from tarry.proto.tarry_log_pb2 import LogEntry
from tarry.proto.tarry_peer_pb2 import PeerMessage
from tarry.replication.consensus import Consensus
from tarry.replication.engine import Clock, check_source, entry_payload, is_regular
from tarry.replication.journal import Batch, Journal
from tarry.replication.proposals import Proposals
from tarry.replication.settings import ReplicationSettings
from tarry.replication.status import (
    NotLeader,
    PeerStatus,
    ReplicationStatus,
    Role,
    Transferred,
    TransferRefusal,
    TransferRefused,
)
from tarry.replication.transport import Transport
from tarry.replication.wire import Identity


class Machine(Protocol):
    """What the log is for."""

    @property
    def applied_index(self) -> int:
        """Of the state as recovered; entries up to it are skipped."""

    def apply(self, index: int, term: int, commands: Sequence[bytes]) -> Sequence[Any]:
        """The outcome of each command, in order. Called for every index; without commands where the entry
        is not ours. Total: an exception ends the process."""


class StateMismatch(Exception):
    """The machine's state and the journal do not belong together. The replica must not start."""


class Driver:
    def __init__(
        self,
        *,
        node: str,
        members: Mapping[str, str],
        journal: Journal,
        machine: Machine,
        transport: Transport,
        clock: Clock,
        rng: random.Random,
        settings: ReplicationSettings,
        heartbeat: Callable[[], bytes],
        on_heartbeat: Callable[[str, bytes], None],
        on_role: Callable[[Role], None],
        run_blocking: Callable[[Callable[[], None]], Awaitable[None]] | None = None,
        allow_unaudited_engine: bool = False,
    ) -> None:
        """`members`: addresses by node, of the cluster's first start; afterwards the journal's count.
        `run_blocking`: how disk work leaves the event loop; None: a thread of the loop's.

        Raises StateMismatch, audit.NotAudited.
        """
        if not allow_unaudited_engine:
            check_source()
        if not journal.first_index - 1 <= machine.applied_index <= journal.last_index:
            raise StateMismatch(
                f"applied {machine.applied_index}; journal {journal.first_index} … {journal.last_index}"
            )
        self._node = node
        self._addresses = dict(members)
        self._journal = journal
        self._machine = machine
        self._transport = transport
        self._clock = clock
        self._settings = settings
        self._on_heartbeat = on_heartbeat
        self._on_role = on_role
        self._run_blocking = run_blocking or _in_thread
        self._proposals = Proposals(settings)
        self._inbound: deque[tuple[str, PeerMessage]] = deque()
        self._wake = asyncio.Event()
        self._turned = asyncio.Condition()
        self._stopping = False
        self._role = Role.FOLLOWER
        self._consensus = Consensus(
            node=node,
            members=members,
            journal=journal,
            clock=clock,
            rng=rng,
            settings=settings,
            applied_index=machine.applied_index,
            heartbeat=heartbeat,
        )
        self._applied = machine.applied_index

    async def run(self) -> None:
        """Until stopped. Raises on anything unexpected: the process must then end."""
        journal, settings = self._journal, self._settings
        await self._write(journal.stage())  # the boot number is durable before anything is said with it
        identity = Identity(settings.cluster, self._node, journal.incarnation, journal.boot)
        self._transport.start(identity, self._receive, self._link)
        try:
            self._transport.set_peers(self._peers())
            while not self._stopping:
                await self._wait()
                await self._turn()
        finally:
            self._proposals.lose_leadership(None)
            await self._transport.stop()
            await self._notify()

    async def stop(self) -> None:
        """Returns at once; `run` ends after its turn."""
        self._stopping = True
        self._wake.set()

    async def propose(self, command: bytes) -> Any:
        """The machine's outcome of the command, once it is committed and applied here.

        Raises NotLeader, Unknown, Overloaded, CommandTooLarge. A cancelled call may still be applied.
        """
        if self._consensus.role is not Role.LEADER or self._stopping:
            raise NotLeader(self._other_leader())
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._proposals.put(command, answer)
        self._wake.set()
        return await answer

    async def read_barrier(self) -> None:
        """Returns when the state here contains everything acknowledged before the call. Raises NotLeader."""
        since, term = self._clock.monotonic(), self._consensus.term
        floor = self._consensus.commit_index
        while not (self._applied >= floor and self._is_current(since)):
            if self._consensus.role is not Role.LEADER or self._consensus.term != term or self._stopping:
                raise NotLeader(self._other_leader())
            await self._next_turn()
        if self._consensus.role is not Role.LEADER or self._consensus.term != term:
            raise NotLeader(self._other_leader())

    def may_serve(self) -> bool:
        """Leads, nobody else can lead, and everything committed before is applied here. True only for the
        moment in which it is asked."""
        return self._consensus.may_serve(self._clock.monotonic())

    async def transfer(self, target: str | None, deadline_ms: int) -> Transferred:
        """Hands leadership over; `target` None: the member that has most. Raises TransferRefused."""
        consensus, begun = self._consensus, self._clock.monotonic()
        chosen = self._transfer_target(target)
        term, deadline = consensus.term, begun + deadline_ms / 1000
        consensus.begin_transfer(chosen, deadline)
        self._wake.set()
        while consensus.role is Role.LEADER and consensus.term == term:
            if not consensus.transfer.running or self._stopping:
                raise TransferRefused(TransferRefusal.TIMED_OUT, f"{chosen} did not take over")
            await self._next_turn()
        while consensus.leader is None or consensus.term == term:
            if self._clock.monotonic() >= deadline or self._stopping:
                raise TransferRefused(TransferRefusal.TIMED_OUT, "given up, and nobody leads yet")
            await self._next_turn()
        pause_ms = round((self._clock.monotonic() - begun) * 1000)
        return Transferred(consensus.leader, consensus.term, pause_ms)

    def status(self) -> ReplicationStatus:
        consensus, journal = self._consensus, self._journal
        return ReplicationStatus(
            node=self._node,
            role=consensus.role,
            leader=consensus.leader,
            term=consensus.term,
            commit_index=consensus.commit_index,
            applied_index=self._applied,
            first_index=journal.first_index,
            last_index=journal.last_index,
            members=dict(self._addresses),
            peers={peer: self._peer_status(peer) for peer in self._peers()},
            may_serve=self.may_serve(),
        )

    # The turn

    async def _wait(self) -> None:
        if self._wake.is_set():
            await asyncio.sleep(0)  # others' turn, even under load
            return
        timeout_s = self._consensus.next_deadline() - self._clock.monotonic()
        if timeout_s > 0:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(timeout_s, self._wake.set)
            await self._wake.wait()
            timer.cancel()

    async def _turn(self) -> None:
        self._wake.clear()
        consensus, journal = self._consensus, self._journal
        for _ in range(min(len(self._inbound), self._settings.turn_messages_max)):
            consensus.receive(*self._inbound.popleft())
        self._propose()
        consensus.tick()
        outbox = consensus.take_outbox()
        batch = journal.stage()
        if batch is None:
            self._send(outbox)
            self._apply()
        else:
            early, late = self._split(outbox)
            self._send(early)
            writing = asyncio.ensure_future(self._write(batch))
            try:
                self._apply()
            finally:
                await writing
            self._send(late)
        self._tell()
        if self._inbound or self._applied < min(consensus.commit_index, journal.durable_index):
            self._wake.set()
        await self._notify()

    def _propose(self) -> None:
        proposals, consensus = self._proposals, self._consensus
        if not consensus.may_propose(self._clock.monotonic()):
            return
        while proposals.waiting and proposals.under_way < self._settings.entries_in_flight_max:
            commands, answers = proposals.take()
            if not answers:
                continue
            index = consensus.append(entry_payload(commands))
            if index is None:
                raise StateMismatch("the engine refused a proposal while it leads")
            proposals.proposed(index, consensus.term, answers)

    def _split(self, outbox: list[tuple[str, PeerMessage]]) -> tuple[list[Any], list[Any]]:
        """What promises nothing: appends of a term, and with a commit index, that are durable here."""
        durable_term, durable_index = self._journal.durable_term, self._journal.durable_index
        early: list[tuple[str, PeerMessage]] = []
        late: list[tuple[str, PeerMessage]] = []
        for peer, message in outbox:
            append = message.append if message.HasField("append") else None
            free = append and append.term == durable_term and append.commit_index <= durable_index
            (early if free else late).append((peer, message))
        return early, late

    def _send(self, outbox: list[tuple[str, PeerMessage]]) -> None:
        by_peer: dict[str, list[bytes]] = {}
        for peer, message in outbox:
            by_peer.setdefault(peer, []).append(message.SerializeToString())
        for peer, messages in by_peer.items():
            self._transport.send(peer, messages)

    async def _write(self, batch: Batch | None) -> None:
        if batch is not None:
            await self._run_blocking(lambda: self._journal.write(batch))
            self._journal.mark_durable(batch)

    def _apply(self) -> None:
        """Applies what is committed and durable here, for as long as the budget lasts."""
        limit = min(self._consensus.commit_index, self._journal.durable_index)
        if self._applied >= limit:
            return
        stop = self._clock.monotonic() + self._settings.apply_budget_ms / 1000
        while self._applied < limit:
            entry = self._journal.entry(self._applied + 1)
            payload, index, term = entry
            commands = LogEntry.FromString(payload[1:]).commands if is_regular(entry) else ()
            outcomes = self._machine.apply(index, term, commands)
            self._applied = index
            self._proposals.applied(index, term, outcomes)
            if self._clock.monotonic() >= stop:
                break
        self._consensus.applied(self._applied)
        if self._proposals.waiting:
            self._wake.set()

    def _tell(self) -> None:
        """Everybody who wants to know what has changed."""
        for leader, state in self._consensus.take_heard():
            self._on_heartbeat(leader, state)
        role = self._consensus.role
        if role is not self._role:
            self._role = role
            if role is not Role.LEADER:
                self._proposals.lose_leadership(self._other_leader())
            self._on_role(role)

    # Inside

    def _receive(self, peer: str, messages: list[PeerMessage]) -> None:
        self._inbound.extend((peer, message) for message in messages)
        self._wake.set()

    def _link(self, peer: str, up: bool) -> None:
        self._consensus.link(peer, up)
        self._wake.set()

    def _is_current(self, since: float) -> bool:
        consensus = self._consensus
        known = consensus.confirmed_since(since)
        return known or (consensus.has_lease(self._clock.monotonic()) and consensus.confirmed_since(0.0))

    def _transfer_target(self, target: str | None) -> str:
        consensus = self._consensus
        if consensus.role is not Role.LEADER:
            raise TransferRefused(TransferRefusal.NOT_LEADER, f"{consensus.leader} leads")
        if consensus.transfer.running:
            raise TransferRefused(TransferRefusal.BUSY, f"already going to {consensus.transfer.target}")
        linked = [peer for peer in sorted(consensus.voters) if consensus.linked(peer)]
        if target is None and linked:
            return max(linked, key=consensus.match_index)
        if target is None or target not in linked:
            raise TransferRefused(TransferRefusal.NO_TARGET, f"{target or 'no member'} is not connected")
        return target

    def _peers(self) -> dict[str, str]:
        return {peer: address for peer, address in self._addresses.items() if peer != self._node}

    def _peer_status(self, peer: str) -> PeerStatus:
        consensus = self._consensus
        clock = consensus.peer_clocks.get(peer)
        heard = clock.heard if clock else None
        return PeerStatus(
            address=self._addresses[peer],
            connected=consensus.linked(peer),
            voting=peer in consensus.voters,
            match_index=consensus.match_index(peer) if consensus.role is Role.LEADER else 0,
            clock_offset_ms=clock.offset_ms(self._clock) if clock else None,
            rtt_ms=clock.rtt_ms if clock else None,
            heard_ms_ago=None if heard is None else (self._clock.monotonic() - heard) * 1000,
        )

    def _other_leader(self) -> str | None:
        leader = self._consensus.leader
        return None if leader == self._node else leader

    async def _next_turn(self) -> None:
        async with self._turned:
            await self._turned.wait()

    async def _notify(self) -> None:
        async with self._turned:
            self._turned.notify_all()


async def _in_thread(work: Callable[[], None]) -> None:
    await asyncio.get_running_loop().run_in_executor(None, work)
