"""The state of one replica that its procedures share: its parts, and the turns in which they change."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tarry.replication.blocking import RunBlocking
from tarry.replication.clock import Clock
from tarry.replication.durations import Timings
from tarry.replication.errors import NotLeader
from tarry.replication.journal.journal import Journal
from tarry.replication.loop_holds import Holds
from tarry.replication.raft.consensus import Consensus
from tarry.replication.raft.membership import Membership
from tarry.replication.settings import ReplicationSettings
from tarry.replication.status import Dropped, Hello, PeerStatus, ReplicationStatus, Role


@dataclass(slots=True)
class Replica:
    node: str
    journal: Journal
    membership: Membership
    consensus: Consensus
    """Replaced when a snapshot is installed; do not keep a reference across turns."""
    clock: Clock
    settings: ReplicationSettings
    run_blocking: RunBlocking
    applied: int
    hello: Hello = Hello()  # noqa: RUF009 - a value that never changes
    cluster_level: Callable[[], int] = lambda: 1
    """The cluster's level, as the machine here has applied it."""
    flush_ms: Callable[[], int] = lambda: 0
    """Within it the cluster's durability lets written entries be flushed, as applied here; 0: at once."""
    flush_awaited: bool = False
    """Somebody waits until a majority has flushed an entry."""
    given_away: set[int] = field(default_factory=set)
    """Indices of states that followers were given, and have not gone on from yet."""
    dropped: Counter[tuple[str, Dropped]] = field(default_factory=Counter)
    """Messages that count for nothing: by who said them, and why."""
    waits_for: Sequence[str] = ()
    """Members that have yet to say whether this node, which has no journal, has spoken before."""
    stopping: bool = False
    failure: BaseException | None = None
    """Of something beside the turns; the next turn raises it."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    holds: Holds = field(default_factory=Holds)
    timings: Timings = field(default_factory=Timings)
    _waiters: list[asyncio.Future[None]] = field(default_factory=list)

    def fail(self, error: BaseException) -> None:
        self.failure, self.stopping = error, True
        self.wake.set()

    def watch(self, task: asyncio.Task[None]) -> None:
        """End the replica with the error of a task that is done, if it has one."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)

    def now(self) -> float:
        return self.clock.monotonic_s()

    def leads(self, term: int) -> bool:
        """Return whether it leads in that very term, so without a break."""
        return self.consensus.state.leads(term) and not self.stopping

    async def read_barrier(self) -> None:
        """Return once the state here contains all that was acknowledged before the call (dissertation §6.4).

        The commit index of the call is right if this replica led at some moment after it: by its lease, or by
        a majority's answers to heartbeats sent since. Raises NotLeader.
        """
        since, state, led = self.now(), self.consensus.state, False
        term, floor = state.term, state.commit_index
        while self.leads(term):
            state, heartbeats = self.consensus.state, self.consensus.heartbeats
            led = led or heartbeats.confirmed_since(since) or heartbeats.knows_commits_by_lease(self.now())
            if led and self.applied >= max(floor, state.no_op_index):
                return
            await self.next_turn()
        raise self.not_leader()

    def journal_start(self, index: int) -> int:
        """Return where the journal may start once all up to ``index`` is in the machine's durable state.

        Entries behind a state that was sent to a follower are retained until every follower has them, or the
        byte limit is reached.
        """
        settings, state = self.settings, self.consensus.state
        peers = state.peers if state.role is Role.LEADER else ()
        behind = min(map(state.match_index, peers), default=index)
        furthest = self.journal.start_retaining(index, settings.snapshot_retained_bytes_max)
        self.given_away = {given for given in self.given_away if given >= max(behind + 1, furthest)}
        usual = self.journal.start_retaining(index, settings.retained_bytes_max)
        return min(self.given_away | {usual})

    def status(self, peers: Mapping[str, str]) -> ReplicationStatus:
        """Return the replica's status; `peers`: addresses by node."""
        state, journal = self.consensus.state, self.journal
        return ReplicationStatus(
            node=self.node,
            role=state.role,
            leader=state.leader,
            term=state.term,
            commit_index=state.commit_index,
            applied_index=self.applied,
            first_index=journal.first_index,
            last_index=journal.last_index,
            members=self.membership.current(),
            peers={peer: self._peer_status(peer, address) for peer, address in peers.items()},
            may_serve=self.consensus.heartbeats.may_serve(self.now()),
            hello=self.hello,
            unflushed=journal.durable_index - journal.flushed_index,
            may_defer=journal.may_defer,
        )

    def _peer_status(self, peer: str, address: str) -> PeerStatus:
        state, progress = self.consensus.state, self.consensus.progress[peer]
        clock = progress.clock
        offset_ms, error_ms = clock.offset_ms(self.clock, self.clock.wall_ms()) or (None, 0.0)
        return PeerStatus(
            address=address,
            connected=progress.linked,
            voting=peer in state.voters,
            match_index=state.match_index(peer) if state.role is Role.LEADER else 0,
            clock_offset_ms=offset_ms,
            clock_error_ms=error_ms,
            rtt_ms=clock.rtt_ms,
            heard_ms_ago=None if clock.heard is None else (self.now() - clock.heard) * 1000,
            hello=progress.hello if state.role is Role.LEADER else None,
        )

    def not_leader(self) -> NotLeader:
        leader = self.consensus.state.leader
        return NotLeader(None if leader == self.node else leader)

    async def next_turn(self) -> None:
        """Wait until the end of a turn."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    @property
    def awaited(self) -> bool:
        """True if somebody waits for the next turn."""
        return bool(self._waiters)

    def end_turn(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
