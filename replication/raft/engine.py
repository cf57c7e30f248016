"""The engine's state and actions under plain names, without any of the guards."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Set
from typing import Any

from tarry.proto.tarry_peer_pb2 import MembershipChange
from tarry.replication.clock import Clock
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.records import membership_payload
from tarry.replication.raft.guarded_syncobj import GuardedSyncObj, Seam, configuration, member, set_time
from tarry.replication.settings import ReplicationSettings
from tarry.replication.status import Role

ROLES = (Role.FOLLOWER, Role.CANDIDATE, Role.LEADER)  # by the engine's numbers


class EngineState:
    """Read-only view of one replica's engine."""

    def __init__(self, raft: GuardedSyncObj) -> None:
        self._raft = raft

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
        """Index of this leadership's first entry: once it is committed, so are all entries before it."""
        return int(self._raft._SyncObj__noopIDx or 0)

    @property
    def voters(self) -> frozenset[str]:
        """The other members that vote."""
        return self._raft.voters

    @property
    def learners(self) -> frozenset[str]:
        return frozenset(node.id for node in self._raft._SyncObj__readonlyNodes)

    @property
    def peers(self) -> frozenset[str]:
        """The other members and the learners."""
        return self.voters | self.learners

    @property
    def election_deadline(self) -> float:
        return float(self._raft._SyncObj__raftElectionDeadline)

    @property
    def append_deadline(self) -> float:
        return float(self._raft._SyncObj__newAppendEntriesTime)

    def leads(self, term: int) -> bool:
        """Return whether it was elected in that term; `Heartbeats.may_serve` says whether it may serve."""
        return self.role is Role.LEADER and self.term == term

    def match_index(self, peer: str) -> int:
        return int(self._raft._SyncObj__raftMatchIndex.get(member(peer), 0))

    def next_index(self, peer: str) -> int:
        return int(self._raft._SyncObj__raftNextIndex.get(member(peer), 0))


class Engine(EngineState):
    """pysyncobj for one replica. It acts only inside calls, at the time that the clock then shows."""

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
        """Take `members`, addresses by node as of the journal's first entry; it has the later changes."""
        self._clock = clock
        self._journal = journal
        self.patience_s = settings.patience_ms / 1000
        """How much longer than usual the leader may be silent."""
        low, high = settings.election_min_ms / 1000, settings.election_max_ms / 1000
        set_time(clock)
        raft = GuardedSyncObj(
            node,
            [name for name in sorted(members) if name != node],
            journal,
            configuration(settings, journal),
            Seam(on_send),
            lambda: low + (high - low) * rng.random() + self.patience_s,
            clock.monotonic_s(),
            settings.append_bytes,
        )
        super().__init__(raft)
        for index, payload in journal.membership_changes:  # effective once in the log, not once applied
            self._raft.change_cluster(payload)
            self._raft.change_index = index
        self.advance_commit(applied_index)
        self.applied(applied_index)

    def deliver(self, peer: str, message: dict[str, Any]) -> None:
        """Pass on a message that the guards accepted, in the engine's own form."""
        self._enter()._SyncObj__onMessageReceived(member(peer), message)

    def deliver_answer(self, peer: str, message: dict[str, Any]) -> None:
        """Pass on an answer to an append without shortening the patience granted to the peer."""
        heard = self._raft._SyncObj__lastResponseTime
        before = heard.get(member(peer), 0.0)
        self.deliver(peer, message)
        if member(peer) in heard:
            heard[member(peer)] = max(before, heard[member(peer)])

    def tick(self) -> None:
        """Commit what a majority has, step down without a majority, send what is due."""
        self._enter()._onTick(0.0)

    def campaign(self) -> None:
        """Raise the term and ask for votes."""
        raft = self._enter()
        raft._SyncObj__raftElectionDeadline = 0.0
        raft.may_campaign = True
        raft._onTick(0.0)
        raft.may_campaign = False

    def append(self, payload: bytes) -> int | None:
        """Return the entry's index; None: not the leader, or a membership change while one is running."""
        if self.role is not Role.LEADER:
            return None
        before = self._journal.last_index
        self._enter().log_command(payload)
        if self._journal.last_index == before:
            return None
        self.kick()
        return before + 1

    def kick(self) -> None:
        """Send with the next tick, due or not."""
        self._raft._SyncObj__newAppendEntriesTime = 0.0

    def kick_by(self, deadline: float) -> None:
        self._raft._SyncObj__newAppendEntriesTime = min(self._raft._SyncObj__newAppendEntriesTime, deadline)

    def rest_until(self, deadline: float) -> None:
        """Send no empty appends until the deadline: heartbeats show that the leader lives."""
        self._raft._SyncObj__newAppendEntriesTime = max(self._raft._SyncObj__newAppendEntriesTime, deadline)

    def postpone_election(self) -> None:
        raft = self._enter()
        raft._SyncObj__raftElectionDeadline = raft.now + raft.timeout()

    def retry_election_at(self, deadline: float) -> None:
        self._raft._SyncObj__raftElectionDeadline = deadline

    def follow(self, term: int, leader: str | None = None) -> None:
        """Become a follower in the term; if it is higher than ours, without a vote in it."""
        raft = self._enter()
        if term > self.term:
            raft._SyncObj__setCurrentTerm(term, None)
        raft._SyncObj__setState(0)
        raft._SyncObj__raftLeader = None if leader is None else member(leader)

    def applied(self, index: int) -> None:
        self._raft._SyncObj__raftLastApplied = max(1, index)

    def advance_commit(self, index: int) -> None:
        """Raise the commit index to an applied index: what was applied was committed."""
        if index > self.commit_index:
            self._raft._SyncObj__raftCommitIndex = min(index, self._journal.last_index)
            self._journal.set_commit_index(self.commit_index)

    def keep_next_index(self, peer: str, index: int) -> None:
        """Keep the next index of a pipeline: an answer to one append does not revoke those sent after it."""
        following = self._raft._SyncObj__raftNextIndex
        node = member(peer)
        following[node] = max(index, following[node])

    def heard(self, peer: str, patience_s: float) -> None:
        """Count a sign of life towards staying the leader, whatever it answers."""
        self._raft._SyncObj__lastResponseTime[member(peer)] = self._clock.monotonic_s() + patience_s

    # Who may be sent to

    def reach(self, peer: str, reachable: bool) -> None:
        nodes = self._raft._SyncObj__connectedNodes
        (nodes.add if reachable else nodes.discard)(member(peer))

    def add_learner(self, peer: str) -> None:
        self._enter()._SyncObj__readonlyNodes.add(member(peer))
        self._raft._SyncObj__raftNextIndex[member(peer)] = self._journal.last_index + 1
        self._raft._SyncObj__raftMatchIndex[member(peer)] = 0

    def begin_with(self, members: Set[str]) -> None:
        """Take other members as of the journal's first entry; there must be no later changes in it."""
        for node in sorted(members ^ self.voters):
            change = MembershipChange(node=node, remove=node in self.voters)
            self._enter().change_cluster(membership_payload(change))

    def drop_learner(self, peer: str) -> None:
        self._raft._SyncObj__readonlyNodes.discard(member(peer))
        if peer not in self.voters:
            self._raft._SyncObj__raftNextIndex.pop(member(peer), None)
            self._raft._SyncObj__raftMatchIndex.pop(member(peer), None)

    def _enter(self) -> GuardedSyncObj:
        """Set the module global that the engine reads time from: several engines may share a process."""
        set_time(self._clock)
        self._raft.now = self._clock.monotonic_s()
        return self._raft
