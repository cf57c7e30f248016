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
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any

from tarry.proto.tarry_peer_pb2 import LogPosition, PeerMessage
from tarry.replication.blocking import RunBlocking, in_thread
from tarry.replication.clock import Clock
from tarry.replication.driver import first_start, leadership_transfer
from tarry.replication.driver.adaptive_writes import Writes
from tarry.replication.driver.apply import Applier, Machine
from tarry.replication.driver.fast_path import FastPath
from tarry.replication.driver.flushes import Flushes
from tarry.replication.driver.install_snapshot import SnapshotInstaller, StateMismatch, finish_installing
from tarry.replication.driver.level_raise import LevelRaise
from tarry.replication.driver.membership_change import MembershipChanges
from tarry.replication.driver.proposals import Proposals
from tarry.replication.driver.send_barrier import Outgoing, SendBarrier
from tarry.replication.driver.serve_snapshot import position, serve
from tarry.replication.durations import Timings
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.records import Batch
from tarry.replication.loop_holds import Holds
from tarry.replication.raft.consensus import Consensus
from tarry.replication.raft.guarded_syncobj import check_source
from tarry.replication.raft.membership import Membership, Origin, counts
from tarry.replication.replica import Replica
from tarry.replication.settings import ReplicationSettings
from tarry.replication.snapshot.transfer import SnapshotSink, SnapshotSource
from tarry.replication.spoken_peers import SpokenPeers
from tarry.replication.status import Dropped, Hello, ReplicationStatus, Role, Transferred
from tarry.replication.transport.envelope import Identity
from tarry.replication.transport.interface import Transport

_ANSWERS = frozenset({"vote", "pre_vote", "appended", "heartbeat_reply"})
"""Kinds of messages that count only from the expected journal of a member."""
FORGOTTEN_MAX = 10_000
"""Entries that a turn drops from the journal, in some 4 ms; there may be hundreds of thousands."""
AT_ONCE_BYTES_MAX = 64 << 10
"""Size of a batch that a quick disk writes within the turn of the event loop."""
SHARED_TURN_S = 0.001
"""A turn of consensus that took longer shares no turn of the event loop with applying."""
_TIMER_SLACK_S = 0.0001  # the engine's comparisons are strict: at its deadline it is not yet due
_TIMER_LATE_S = 2 * _TIMER_SLACK_S  # two clocks are read one after the other


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
        heartbeat: Callable[[float], bytes],
        on_heartbeat: Callable[[str, bytes], None],
        on_role: Callable[[Role], None],
        snapshot_source: SnapshotSource | None = None,
        snapshot_sink: SnapshotSink | None = None,
        known: Callable[[], bytes] = bytes,
        told_all: Callable[[], bool] = lambda: True,
        hello: Hello = Hello(),  # noqa: B008 - a value that never changes
        cluster_level: Callable[[], int] = lambda: 1,
        flush_ms: Callable[[], int] = lambda: 0,
        run_blocking: RunBlocking | None = None,
        write_journal: Writes | None = None,
        holds: Holds | None = None,
        timings: Timings | None = None,
    ) -> None:
        """Take `members`, addresses by node, of the cluster's first start; afterwards the journal's count.

        A node that is to join a running cluster is not among them.
        `heartbeat`: what one sent then, by the monotonic clock, says of the dispatcher's state. `known`: what
        this node knows of it, for whom it elects. `told_all`: the last heartbeat said all of it.
        `cluster_level`: as the machine has applied it; `hello` says what this node can apply.
        `flush_ms`: by the cluster's durability, as applied, what is written is flushed within it; 0: at once.
        `run_blocking`: how disk work leaves the event loop, else a thread; `write_journal`: how the journal
        is written, else by `run_blocking`.

        Raises StateMismatch, engine_audit.NotAudited.
        """
        check_source()
        self._journal = journal
        self._machine = machine
        self._transport = transport
        self._clock = clock
        self._settings = settings
        self._on_role = on_role
        self._run_blocking = run_blocking or in_thread
        self._write_journal = write_journal or Writes(self._run_blocking)
        self._snapshot_source = snapshot_source
        self._barrier = SendBarrier(journal, transport)
        self._proposals = Proposals(settings)
        self._inbound: deque[tuple[str, Origin, PeerMessage]] = deque()
        self._leadership: tuple[Role, int] = (Role.FOLLOWER, 0)
        self._compact_to = 0
        self._writing: asyncio.Future[Any] | None = None
        self._upkeep: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._node = node
        self._membership = Membership(journal, members)
        if journal.empty and node not in members:
            journal.join()
        finish_installing(journal, machine.applied_index)
        self._new_consensus = partial(
            Consensus,
            node=node,
            membership=self._membership,
            journal=journal,
            clock=clock,
            rng=rng,
            settings=settings,
            heartbeat=heartbeat,
            known=known,
            told_all=told_all,
            hello=hello,
            cluster_level=cluster_level,
            flush_ms=flush_ms,
        )
        self._replica = Replica(
            node=node,
            journal=journal,
            membership=self._membership,
            consensus=self._new_consensus(applied_index=machine.applied_index),
            clock=clock,
            settings=settings,
            run_blocking=self._run_blocking,
            applied=machine.applied_index,
            hello=hello,
            cluster_level=cluster_level,
            flush_ms=flush_ms,
            holds=holds or Holds(),
            timings=timings or Timings(),
        )
        self._flushes = Flushes(self._replica)
        self._fast_path = FastPath(self._replica, self._barrier, on_heartbeat)
        self._applier = Applier(self._replica, machine, self._proposals)
        self._membership_changes = MembershipChanges(self._replica, self._set_peers)
        self._level_raise = LevelRaise(self._replica, self._membership_changes, self.propose)
        self._known_peers = self._membership.peers()
        self._voters = self._membership.voters()
        self._peers_by = self._said_of_members()
        self._members = members
        self._unanswered: Set[str] = frozenset()  # of them, those not dialled before they speak
        self._spoken_peers = SpokenPeers(self._replica)
        self._cluster = self.cluster
        self._early: list[tuple[str, list[PeerMessage], Origin]] = []  # of nodes that are not noted yet
        self._installer = SnapshotInstaller(self._replica, transport, snapshot_sink)

    async def run(self) -> None:
        """Run until stopped. Raises JournalLost, and on anything unexpected: the process must then end."""
        replica = self._replica
        self._transport.introduce(self._spoken_peers)
        try:
            if self._journal.empty and self._node in self._membership.current():
                await first_start.begin(replica, self._transport)
            if not replica.stopping:
                await self._begin()
            while not replica.stopping:
                await self._wait()
                await self._turn()
            if replica.failure is not None:
                raise replica.failure
            await self._flushes.end()
        finally:
            replica.stopping = True
            await self._flushes.stop()
            if self._timer is not None:
                self._timer.cancel()
            self._installer.cancel()
            self._proposals.lose_leadership(None)
            await self._transport.stop()
            if under_way := [work for work in (self._writing, self._upkeep) if work is not None]:
                await asyncio.wait(under_way)  # the journal may be closed after this
            replica.end_turn()

    async def _begin(self) -> None:
        await self._write(self._journal.stage())  # the boot number is durable before anything is said with it
        serve_snapshot = partial(serve, self._replica, self._snapshot_source)
        self._transport.start(self._identity(), self._receive, self._link, serve_snapshot, self._replica.fail)
        self._set_peers()

    async def stop(self) -> None:  # returns at once; `run` ends after its turn
        self._replica.stopping = True
        self._replica.wake.set()

    async def propose(self, command: bytes, cost_us: int = 0, *, flushed: bool = False) -> Any:
        """Return the machine's outcome of the command, once it is committed and applied here.

        `cost_us`: what applying it is thought to take; entries are filled up to a bound of it.
        `flushed`: only once a majority has flushed it, also where the cluster's durability is async.

        Raises NotLeader, Unknown, Overloaded, CommandTooLarge. A cancelled call may still be applied.
        """
        if self._replica.consensus.state.role is not Role.LEADER or self._replica.stopping:
            raise self._replica.not_leader()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._proposals.put(command, answer, cost_us, flushed=flushed)
        self._replica.wake.set()
        return await answer

    async def read_barrier(self) -> None:
        """Wait until the state here has everything acknowledged before the call. Raises NotLeader."""
        await self._replica.read_barrier()

    def may_serve(self) -> bool:
        """Return whether it leads, nobody else can, and all committed before is applied: at this moment."""
        return self._replica.consensus.heartbeats.may_serve(self._clock.monotonic_s())

    async def transfer(self, target: str | None, deadline_ms: int) -> Transferred:
        """Transfer leadership; `target` None: the member that has most. Raises TransferRefused."""
        return await leadership_transfer.transfer(self._replica, target, deadline_ms)

    async def add(self, node: str, address: str, deadline_ms: int) -> None:
        """Make a node a member, once it has the log. Raises MembershipRefused, NotLeader, Unknown."""
        await self._membership_changes.add(node, address, deadline_ms)

    async def remove(self, node: str) -> None:
        """Remove a member. Raises MembershipRefused, NotLeader, Unknown."""
        await self._membership_changes.remove(node)

    async def leave(self, node: str, incarnation: int = 0) -> None:
        """Remove a member, which asks for it, unless it is known to be none; `incarnation`: of its journal.

        Raises MembershipRefused, also where another journal is the member of that name, NotLeader, Unknown.
        """
        await self._membership_changes.leave(node, incarnation)

    async def join(self, node: str, address: str, deadline_ms: int, incarnation: int = 0) -> None:
        """Make a node a member, which asks for it, unless it is one there; `incarnation`: of its journal.

        Raises as `leave` does.
        """
        await self._membership_changes.join(node, address, deadline_ms, incarnation)

    async def raise_level(self, level: int, now_ms: int, deadline_ms: int) -> None:
        """Raise the cluster's level, once every member has said now that it can apply it.

        Raises LevelRefused, MembershipRefused (a change of members is running), NotLeader, Unknown.
        """
        await self._level_raise.run(level, now_ms, deadline_ms)

    def lacking(self, level: int) -> Mapping[str, str]:
        """Return the members that cannot apply a level by what they have told this leader, with why."""
        return self._level_raise.lacking(level)

    def unable(self, level: int) -> Mapping[str, str]:
        """Return the members that have said to this leader that they cannot apply a level, with why."""
        return self._level_raise.unable(level)

    async def flush(self) -> None:
        """Return once all that is in the journal now is flushed. Raises what ends the process."""
        await self._flushes.flush()

    def compact(self, index: int) -> None:
        """Drop entries up to `index`, which the durable state contains; some stay for slow followers."""
        self._compact_to = max(self._compact_to, index)

    @property
    def consensus(self) -> Consensus:
        """Consensus, to be read only. Replaced when a snapshot is installed: keep no reference to it."""
        return self._replica.consensus

    @property
    def cluster(self) -> str:
        """Name of the cluster, with its incarnation."""
        return self._spoken_peers.cluster

    def position(self, index: int) -> LogPosition:
        """Return what a log goes on from behind a state. Raises SnapshotFailed: the entry is not here."""
        return position(self._replica, index)

    @property
    def dropped(self) -> Mapping[tuple[str, Dropped], int]:
        """Number of messages ignored, by sender and reason."""
        return self._replica.dropped

    @property
    def waits_for(self) -> Sequence[str]:
        """Members that have yet to say whether this node, which has no journal, has spoken before."""
        return self._replica.waits_for

    def is_peer(self, node: str) -> bool:
        """Return whether messages of that node are accepted: a member, a newcomer, or a configured node."""
        return node in self._known_peers

    def beat(self) -> None:
        """Send a leader's heartbeats with the next turn."""
        self._replica.consensus.heartbeats.beat()
        self._replica.wake.set()

    def stir(self) -> None:
        """Note that the dispatch state changed or soon will: return to the usual heartbeat interval."""
        if self._replica.consensus.stir():
            self._replica.wake.set()

    @property
    def unflushed_s(self) -> float:
        """For how long the oldest write of this node has waited for its flush."""
        return self._flushes.waits_s

    def status(self) -> ReplicationStatus:
        return self._replica.status(self._peers())

    # The turn

    async def _wait(self) -> None:
        wake = self._replica.wake
        deadline, now = self._replica.consensus.next_deadline(), self._clock.monotonic_s()
        if wake.is_set() or deadline <= now:
            await asyncio.sleep(0)  # others' turn, even under load
            return
        if self._timer is None or self._timer.when() - _loop_s() > deadline - now + _TIMER_LATE_S:
            self._set_timer()
        await wake.wait()

    def _set_timer(self) -> None:
        """Wake up at the deadline; a timer that is too early, for the deadline has moved, is set again."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        timeout_s = self._replica.consensus.next_deadline() - self._clock.monotonic_s()
        if timeout_s <= 0:
            self._replica.wake.set()
        else:
            self._timer = asyncio.get_running_loop().call_later(timeout_s + _TIMER_SLACK_S, self._set_timer)

    async def _turn(self) -> None:
        replica, began_s = self._replica, self._replica.now()
        replica.wake.clear()
        if self._installer.ready:
            await self._install()
        consensus = replica.consensus
        for _ in range(min(len(self._inbound), self._settings.turn_messages_max)):
            peer, origin, message = self._inbound.popleft()
            if not self._counts(peer, origin, message):
                replica.dropped[peer, Dropped.JOURNAL] += 1
            elif not consensus.receive(peer, message):
                replica.dropped[peer, Dropped.TERM] += 1
        more = self._proposals.propose(consensus, self._clock.monotonic_s())
        consensus.tick()
        self._compact()
        source = consensus.log_replication.take_snapshot_source()
        if source is not None:
            self._installer.ask(source)
        outbox = consensus.outbox.take()
        batch = self._stage()
        if batch is None or self._is_quick(batch):
            self._write_at_once(batch, outbox)
            if self._applier.due and replica.now() - began_s >= SHARED_TURN_S:
                await asyncio.sleep(0)
            self._applier.apply()
        else:
            await self._write_and_apply(batch, outbox)
        self._answer_flushed()
        if batch is not None:
            self._flushes.wrote(batch)
            self._begin_upkeep()
        if self._said_of_members() != self._peers_by:
            self._set_peers()
        heard, self._early = self._early, []
        for peer, messages, origin in heard:
            self._receive(peer, messages, origin)
        self._notify()
        if more or self._inbound or self._applier.due or self._flushes.due:
            replica.wake.set()
        replica.end_turn()

    def _stage(self) -> Batch | None:
        batch = self._journal.stage(defer=self._flushes.may_defer())
        if batch is not None and batch.deferred:
            self._replica.consensus.log_replication.note_deferred(batch.last_index)
        return batch

    def _is_quick(self, batch: Batch) -> bool:
        small = batch.size_bytes <= AT_ONCE_BYTES_MAX and not self._journal.is_long(batch)
        # a flush that is late shows that the disk is slow, whatever the latest syncs took
        quick = not self._flushes.late and self._write_journal.quick(batch.size_bytes)
        return small and (batch.deferred or quick)

    def _answer_flushed(self) -> None:
        if self._proposals.awaits_flush:
            self._proposals.flushed(self._replica.consensus.log_replication.flushed_index())
        self._replica.flush_awaited = self._proposals.awaits_flush

    def _write_at_once(self, batch: Batch | None, outbox: Outgoing) -> None:
        """Write within the turn of the event loop, before what rests on the write is sent."""
        if batch is not None:
            early, outbox = self._barrier.split(outbox)
            self._barrier.send(early)  # the peers work while this disk does
            write = self._write_journal.deferred if batch.deferred else self._write_journal.at_once
            with self._replica.holds.by("journal write"):
                write(partial(self._journal.write, batch))
            self._journal.mark_durable(batch)
        self._barrier.send(outbox)

    async def _write_and_apply(self, batch: Batch, outbox: Outgoing) -> None:
        """Write, and apply meanwhile what was durable before this turn."""
        early, late = self._barrier.split(outbox)
        writing = self._begin_write(batch)
        try:
            await asyncio.sleep(0)  # another turn of the event loop begins
            self._barrier.send(early)
            await asyncio.sleep(0)  # only now the write is under way
            self._applier.apply()
        finally:
            await self._until_written(writing)
        self._journal.mark_durable(batch)
        self._barrier.send(late)

    async def _write(self, batch: Batch | None) -> None:
        if batch is not None:
            await self._until_written(self._begin_write(batch))
            self._journal.mark_durable(batch)

    async def _until_written(self, writing: asyncio.Future[Any]) -> None:
        """Wait for a journal write without cancelling it: a thread that writes cannot be cancelled.

        A leader's heartbeats leave meanwhile, for they need no disk; after `write_stall_ms_max` they end, so
        that another node is elected.
        """
        replica = self._replica
        state, heartbeats = replica.consensus.state, replica.consensus.heartbeats
        now_s = self._clock.monotonic_s()
        ends_s = now_s + self._settings.write_stall_ms_max / 1000
        beats = state.role is Role.LEADER and state.term == self._journal.durable_term
        while beats and now_s < ends_s and not writing.done() and not replica.stopping:
            wait_s = min(heartbeats.heartbeat_at, ends_s) - now_s
            await asyncio.wait([writing], timeout=max(0.0, wait_s) + _TIMER_SLACK_S)
            now_s = self._clock.monotonic_s()
            if not writing.done() and now_s >= heartbeats.heartbeat_at:
                heartbeats.send_heartbeats(now_s)
                self._barrier.send(replica.consensus.outbox.take())  # heartbeats alone: a turn took the rest
        await asyncio.shield(writing)

    def _begin_write(self, batch: Batch) -> asyncio.Future[Any]:
        run: RunBlocking = self._write_journal  # and notes how quick the disk is
        if batch.deferred or self._journal.is_long(batch):
            run = self._write_journal.long
        elif batch.size_bytes > AT_ONCE_BYTES_MAX:
            run = self._write_journal.large
        write = run(partial(self._journal.write, batch))
        self._writing = asyncio.ensure_future(self._replica.holds.steps("journal write", write))
        return self._writing

    def _begin_upkeep(self) -> None:
        if self._journal.needs_upkeep() and (self._upkeep is None or self._upkeep.done()):
            self._upkeep = asyncio.ensure_future(self._keep_up())

    async def _keep_up(self) -> None:
        try:
            await self._run_blocking(self._journal.upkeep)
        except Exception as error:  # noqa: BLE001 as in a turn: the process must end
            self._replica.fail(error)

    def _compact(self) -> None:
        index, self._compact_to = self._compact_to, 0
        if self._journal.first_index < index <= self._replica.applied:
            start = self._replica.journal_start(index)
            first = min(start, self._journal.first_index + FORGOTTEN_MAX)
            self._journal.compact(first, self._membership.at(first))
            if first < start:
                self._compact_to = index

    def _notify(self) -> None:
        """Notify of heartbeats received and of a changed role."""
        self._fast_path.pass_on_states()
        state = self._replica.consensus.state
        before, self._leadership = self._leadership, (state.role, state.term)
        if before == self._leadership:
            return
        if before[0] is Role.LEADER:
            self._proposals.lose_leadership(self._replica.not_leader().leader)
        if before[0] is not state.role:
            self._on_role(state.role)

    async def _install(self) -> None:
        """Swap in the state that has arrived, and start consensus anew from its index."""
        if not await self._installer.install(self._write):
            return
        replica, linked = (
            self._replica,
            [peer for peer in self._peers() if self._replica.consensus.progress[peer].linked],
        )
        applied, installed = self._machine.applied_index, self._journal.first_index
        if applied != installed:
            raise StateMismatch(f"installed {installed}; applied {applied}")
        replica.applied, contact = applied, replica.consensus.elections.contact
        replica.consensus = self._new_consensus(applied_index=applied)
        replica.consensus.elections.contact = contact  # what has been promised stays so
        self._inbound.clear()
        self._transport.restart(self._identity())
        self._set_peers()
        for peer in linked:
            replica.consensus.log_replication.link(peer, True)

    # Inside

    def _identity(self) -> Identity:
        journal = self._journal
        return Identity(self.cluster, self._node, journal.incarnation, journal.boot, journal.joined)

    def _receive(self, peer: str, messages: list[PeerMessage], origin: Origin) -> None:
        if peer not in self._known_peers:
            self._replica.dropped[peer, Dropped.STRANGER] += len(messages)
            return
        if peer in self._unanswered:
            self._membership.hear_of({peer: self._members[peer]})
            self._set_peers()
        if not self._spoken_peers.noted(peer):
            self._spoken_peers.note(peer)
            self._early.append((peer, messages, origin))
            return
        with self._replica.holds.by("peers' messages"):
            at_once = self._is_expected(peer, origin)
            rest = self._fast_path.take(peer, messages) if at_once else messages
            room = max(0, self._replica.settings.inbound_messages_max - len(self._inbound))
            self._inbound.extend((peer, origin, message) for message in rest[:room])
            if len(rest) > room:
                self._replica.dropped[peer, Dropped.STALLED] += len(rest) - room
        if self._inbound or self._proposals.waiting:
            self._replica.wake.set()

    def _counts(self, peer: str, origin: Origin, message: PeerMessage) -> bool:
        """Return whether the message counts. Of a newcomer, answers of one journal count."""
        changes = self._membership_changes
        if peer in changes.newcomers and message.HasField("appended"):
            return changes.is_taught(peer, origin.incarnation, message.appended)
        return self._is_expected(peer, origin) or message.WhichOneof("body") not in _ANSWERS

    def _is_expected(self, peer: str, origin: Origin) -> bool:
        """Return whether it is the journal that the peer was added with, or as a newcomer replicates into."""
        if peer in self._membership_changes.newcomers:
            return self._membership_changes.taught.get(peer, origin.incarnation) == origin.incarnation
        return peer not in self._voters or counts(origin, self._voters[peer])

    def _said_of_members(self) -> tuple[object, ...]:
        """Return a value that changes whenever `_set_peers` has to be called again.

        An address that was heard ends as the log grows as long as its sender's, and so has the same change.
        """
        journal, membership = self._journal, self._membership
        return journal.membership_changes, membership.hearsay, membership.told, journal.cluster_incarnation

    def _link(self, peer: str, up: bool) -> None:
        self._replica.consensus.log_replication.link(peer, up)
        self._replica.wake.set()

    def _set_peers(self) -> None:
        self._peers_by = self._said_of_members()
        if self._cluster != self.cluster:  # a newcomer has become one of the incarnation that took it in
            self._cluster = self.cluster
            self._transport.restart(self._identity())
        self._voters = self._membership.voters()
        self._known_peers = self._membership.peers() | self._membership_changes.newcomers.keys()
        peers = self._peers()
        self._unanswered = self._members.keys() - peers.keys() - {self._node}
        self._transport.set_peers(peers)

    def _peers(self) -> dict[str, str]:
        named = {**self._membership.named(), **self._membership_changes.newcomers}
        return {peer: address for peer, address in named.items() if peer != self._node}


def _loop_s() -> float:
    """Return the time of the event loop's timers: it stands while the machine sleeps; deadlines do not."""
    return asyncio.get_running_loop().time()
