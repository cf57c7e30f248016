"""pysyncobj behind a seam: the only file that knows it.

Kept of it: terms, votes, log matching, commit, sending of entries. Not used: its sockets, threads, pickles,
files, dumps, code versions, method registry, and its applying of commands. Everything it would send comes
out through `on_send`; everything that it would do by itself is switched off or overridden below, each with
its reason. The rules that make it safe are in guard/ and are applied in consensus.py.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pysyncobj.syncobj
from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from tarry.proto.tarry_peer_pb2 import MembershipChange
from tarry.replication.guard import audit
from tarry.replication.journal import Entry, Journal
from tarry.replication.journal_records import MEMBERSHIP
from tarry.replication.journal_view import JournalView
from tarry.replication.settings import ReplicationSettings
from tarry.replication.status import Role

REGULAR = 0
ROLES = (Role.FOLLOWER, Role.CANDIDATE, Role.LEADER)  # by the engine's numbers

pysyncobj.syncobj.createJournal = lambda journal: journal  # the configuration carries ours


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds. Must go on while the machine sleeps (CLOCK_BOOTTIME), or a lease outlives its term."""

    def wall_ms(self) -> int: ...


class _Member(Node):  # type: ignore[misc]
    """The engine iterates over sets of these: their order must not depend on the process's hash seed."""

    def __hash__(self) -> int:
        return zlib.crc32(self.id.encode())


class _Seam(Transport):  # type: ignore[misc]
    """The transport that the engine sees: always ready, connects nobody, hands every message out."""

    ready = True

    def __init__(self, on_send: Callable[[str, dict[str, Any]], None]) -> None:
        super().__init__(None, None, [])
        self._on_send = on_send

    def send(self, node: Node, message: dict[str, Any]) -> bool:
        self._on_send(node.id, message)
        return True

    def tryGetReady(self) -> None:  # noqa: N802
        """Always is."""

    def addNode(self, node: Node) -> None:  # noqa: N802
        """Members come from the journal."""

    def dropNode(self, node: Node) -> None:  # noqa: N802
        """Members come from the journal."""

    def destroy(self) -> None:
        """Holds nothing."""


class _NoPoller:
    def poll(self, timeout: float) -> None:
        """There are no sockets to poll."""


class _NoDumps:
    """The engine's snapshots are never made; a follower that needs one is told so by us."""

    def getTransmissionData(self, transmission: object) -> None:  # noqa: N802
        return None

    def cancelTransmisstion(self, transmission: object) -> None:  # noqa: N802
        return None


class _Raft(SyncObj):  # type: ignore[misc]
    def __init__(
        self,
        node: str,
        others: Sequence[str],
        conf: SyncObjConf,
        seam: _Seam,
        timeout: Callable[[], float],
        now: float,
    ) -> None:
        self.timeout = timeout
        self.now = now
        self.may_campaign = False
        self.change_index = 0  # of the latest membership entry in the log
        super().__init__(_Member(node), [_Member(other) for other in others], conf, transport=seam)
        self._poller = _NoPoller()
        self._SyncObj__serializer = _NoDumps()

    def _SyncObj__generateRaftTimeout(self) -> float:  # noqa: N802
        """Randomness is injected."""
        return self.timeout()

    def _SyncObj__connectedToAnyone(self) -> bool:  # noqa: N802
        """Asked only before it campaigns: the pre-vote decides, not the sockets (L1, L17)."""
        return self.may_campaign

    def _SyncObj__applyLogEntries(self) -> bool:  # noqa: N802
        """The driver applies, within a budget, outside of the tick (S13, S14, L7, L13, L14)."""
        return False

    def _SyncObj__tryLogCompaction(self) -> None:  # noqa: N802
        """The journal's start moves when the state machine says so (S9, S10, S12, S21)."""

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:  # noqa: N802, N803
        raise AssertionError("there are no dumps")

    def _SyncObj__doApplyCommand(self, command: bytes) -> None:  # noqa: N802
        raise AssertionError("the engine applies nothing")

    def _SyncObj__parseChangeClusterRequest(self, command: bytes) -> tuple[str, str, Node] | None:  # noqa: N802
        """Membership in our own encoding: nothing is ever unpickled (S20)."""
        if command[0] != MEMBERSHIP:
            return None
        change = MembershipChange.FromString(command[1:])
        return "rem" if change.remove else "add", change.node, _Member(change.node)

    def _SyncObj__changeCluster(self, request: tuple[str, str, Node]) -> bool:  # noqa: N802
        """One change at a time: the engine checks the index of the running one but never sets it (S7)."""
        if self._SyncObj__raftLastApplied < self.change_index:
            return False
        changed: bool = super()._SyncObj__changeCluster(request)
        if changed:
            self.change_index = self._SyncObj__getCurrentLogIndex() + 1
        return changed

    def _SyncObj__doChangeCluster(self, request: tuple[str, str, Node], reverse: bool = False) -> bool:  # noqa: N802
        """A learner that becomes a member keeps what it already has."""
        node = request[2]
        match, following = self._SyncObj__raftMatchIndex.get(node), self._SyncObj__raftNextIndex.get(node)
        changed: bool = super()._SyncObj__doChangeCluster(request, reverse)
        if changed and node in self._SyncObj__otherNodes and match is not None:
            self._SyncObj__raftMatchIndex[node], self._SyncObj__raftNextIndex[node] = match, following
        self._SyncObj__readonlyNodes.discard(node)
        return changed

    def change_cluster(self, payload: bytes) -> None:
        request = self._SyncObj__parseChangeClusterRequest(payload)
        if request is not None:
            self._SyncObj__doChangeCluster(request)

    def _SyncObj__setState(self, state: int) -> None:  # noqa: N802
        """Who steps down waits like everybody else before it asks to be elected (L17)."""
        if self._SyncObj__raftState == 2 and state != 2:
            self._SyncObj__raftElectionDeadline = self.now + self.timeout()
        super()._SyncObj__setState(state)


class Engine:
    """One replica's Raft, without any of the guards. Everything happens inside a call and at its `now`."""

    def __init__(
        self,
        *,
        node: str,
        members: Mapping[str, str],
        journal: Journal,
        clock: Clock,
        rng: random.Random,
        settings: ReplicationSettings,
        applied_index: int,
        on_send: Callable[[str, dict[str, Any]], None],
    ) -> None:
        """`members`: addresses by node as of the journal's first entry; later changes are in the journal."""
        self._clock = clock
        self._settings = settings
        self._journal = journal
        low, high = settings.election_min_ms / 1000, settings.election_max_ms / 1000
        pysyncobj.syncobj.monotonicTime = clock.monotonic
        self._raft = _Raft(
            node,
            [name for name in sorted(members) if name != node],
            _conf(settings, journal),
            _Seam(on_send),
            lambda: low + (high - low) * rng.random(),
            clock.monotonic(),
        )
        self._nodes: dict[str, Node] = {}
        for index, payload in journal.membership_changes:  # effective once in the log, not once applied (S19)
            self._raft.change_cluster(payload)
            self._raft.change_index = index
        self.advance_commit(applied_index)
        self.applied(applied_index)

    # State

    @property
    def role(self) -> Role:
        return ROLES[self._raft._SyncObj__raftState]

    @property
    def term(self) -> int:
        return int(self._raft._SyncObj__raftCurrentTerm)

    @property
    def leader(self) -> str | None:
        leader = self._raft._SyncObj__raftLeader
        return None if leader is None else str(leader.id)

    @property
    def commit_index(self) -> int:
        return int(self._raft._SyncObj__raftCommitIndex)

    @property
    def no_op_index(self) -> int:
        """Of this leadership. Until it is committed, nothing is known of what earlier leaders committed."""
        return int(self._raft._SyncObj__noopIDx or 0)

    @property
    def voters(self) -> frozenset[str]:
        """The other members."""
        return frozenset(node.id for node in self._raft._SyncObj__otherNodes)

    @property
    def learners(self) -> frozenset[str]:
        return frozenset(node.id for node in self._raft._SyncObj__readonlyNodes)

    @property
    def election_deadline(self) -> float:
        return float(self._raft._SyncObj__raftElectionDeadline)

    def match_index(self, peer: str) -> int:
        return int(self._raft._SyncObj__raftMatchIndex.get(self._node(peer), 0))

    def next_index(self, peer: str) -> int:
        return int(self._raft._SyncObj__raftNextIndex.get(self._node(peer), 0))

    # What happens

    def deliver(self, peer: str, message: dict[str, Any]) -> None:
        """A message that the guards have let through, in the engine's own form."""
        self._enter()._SyncObj__onMessageReceived(self._node(peer), message)

    def tick(self) -> None:
        """Commits what a majority has, steps down without one, sends what is to be sent."""
        self._enter()._onTick(0.0)

    def campaign(self) -> None:
        """Raises the term and asks for votes."""
        raft = self._enter()
        raft._SyncObj__raftElectionDeadline = 0.0
        raft.may_campaign = True
        raft._onTick(0.0)
        raft.may_campaign = False

    def append(self, payload: bytes) -> int | None:
        """The entry's index; None: refused (not the leader, or a membership change while one is running)."""
        if self.role is not Role.LEADER:
            return None
        before = self._journal.last_index
        raft = self._enter()
        raft._applyCommand(payload, None)
        raft._checkCommandsToApply()
        if self._journal.last_index == before:
            return None
        self.kick()
        return before + 1

    def kick(self) -> None:
        """The next tick sends, due or not."""
        self._raft._SyncObj__newAppendEntriesTime = 0.0

    def kick_by(self, deadline: float) -> None:
        self._raft._SyncObj__newAppendEntriesTime = min(self._raft._SyncObj__newAppendEntriesTime, deadline)

    @property
    def append_deadline(self) -> float:
        return float(self._raft._SyncObj__newAppendEntriesTime)

    def postpone_election(self) -> None:
        raft = self._enter()
        raft._SyncObj__raftElectionDeadline = raft.now + raft.timeout()

    def retry_election_at(self, deadline: float) -> None:
        self._raft._SyncObj__raftElectionDeadline = deadline

    def follow(self, term: int, leader: str | None = None) -> None:
        """A higher term was seen: becomes a follower in it, having voted for nobody (L16)."""
        raft = self._enter()
        if term > self.term:
            raft._SyncObj__setCurrentTerm(term, None)
        raft._SyncObj__setState(0)
        raft._SyncObj__raftLeader = None if leader is None else self._node(leader)

    def applied(self, index: int) -> None:
        self._raft._SyncObj__raftLastApplied = max(1, index)

    def advance_commit(self, index: int) -> None:
        """What has been applied here was committed, whatever the journal remembers of it."""
        if index > self.commit_index:
            self._raft._SyncObj__raftCommitIndex = min(index, self._journal.last_index)
            self._journal.set_commit_index(self.commit_index)

    def keep_next_index(self, peer: str, index: int) -> None:
        """Pipelining: an answer to one append does not take back the sending of those after it."""
        following = self._raft._SyncObj__raftNextIndex
        node = self._node(peer)
        following[node] = max(index, following[node])

    def heard(self, peer: str) -> None:
        """A sign of life counts towards staying the leader, whatever it answers (L4)."""
        self._raft._SyncObj__lastResponseTime[self._node(peer)] = self._clock.monotonic()

    # Who may be sent to

    def reach(self, peer: str, reachable: bool) -> None:
        nodes = self._raft._SyncObj__connectedNodes
        (nodes.add if reachable else nodes.discard)(self._node(peer))

    def reachable(self, peer: str) -> bool:
        return self._node(peer) in self._raft._SyncObj__connectedNodes

    def add_learner(self, peer: str) -> None:
        self._enter()._SyncObj__readonlyNodes.add(self._node(peer))
        self._raft._SyncObj__raftNextIndex[self._node(peer)] = self._journal.last_index + 1
        self._raft._SyncObj__raftMatchIndex[self._node(peer)] = 0

    def drop_learner(self, peer: str) -> None:
        self._raft._SyncObj__readonlyNodes.discard(self._node(peer))
        if peer not in self.voters:
            self._raft._SyncObj__raftNextIndex.pop(self._node(peer), None)
            self._raft._SyncObj__raftMatchIndex.pop(self._node(peer), None)

    def _enter(self) -> _Raft:
        """The engine reads time from a global of its module; several engines may live in one process."""
        pysyncobj.syncobj.monotonicTime = self._clock.monotonic
        self._raft.now = self._clock.monotonic()
        return self._raft

    def _node(self, peer: str) -> Node:
        node = self._nodes.get(peer)
        if node is None:
            node = self._nodes[peer] = _Member(peer)
        return node


def check_source() -> None:
    """Raises audit.NotAudited unless the engine's source is the one that was read."""
    audit.check(Path(pysyncobj.syncobj.__file__).parent)


def entry_payload(commands: bytes) -> bytes:
    """`commands`: a serialized LogEntry."""
    return bytes((REGULAR,)) + commands


def membership_payload(change: MembershipChange) -> bytes:
    return bytes((MEMBERSHIP,)) + change.SerializeToString(deterministic=True)


def is_regular(entry: Entry) -> bool:
    return entry[0][0] == REGULAR


def _conf(settings: ReplicationSettings, journal: Journal) -> SyncObjConf:
    return SyncObjConf(
        autoTick=False,
        appendEntriesUseBatch=True,
        appendEntriesPeriod=settings.heartbeat_ms / 1000,
        appendEntriesBatchSizeBytes=settings.append_bytes_max,
        raftMinTimeout=settings.election_min_ms / 1000,
        raftMaxTimeout=settings.election_max_ms / 1000,
        leaderFallbackTimeout=settings.fallback_ms / 1000,
        connectionTimeout=max(3.5, settings.election_max_ms / 1000),
        commandsWaitLeader=False,
        useFork=False,
        fullDumpFile=None,
        logCompactionMinEntries=10**9,
        dynamicMembershipChange=True,
        journalFile=JournalView(journal),
    )
