"""One replica's consensus: the engine with every guard around it. Pure: messages and time in, values out.

        receive ──► elections ─┐            ┌─► take_outbox
        tick    ──► appending ─┼─► engine ──┤
                    leading   ─┘            └─► take_heard, commit_index, role …

The caller writes the journal between a call and the sending of what it put in the outbox.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tarry.proto.tarry_peer_pb2 import MembershipChange, PeerMessage
from tarry.replication.clock import Clock
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.records import membership_payload
from tarry.replication.raft.elections import ConsensusViolated, Elections
from tarry.replication.raft.engine import Engine
from tarry.replication.raft.guard import terms
from tarry.replication.raft.guard.transfer import Phase, Transfer
from tarry.replication.raft.heartbeats import Leading
from tarry.replication.raft.log_replication import Appending
from tarry.replication.raft.membership import Membership
from tarry.replication.raft.outbox import Outbox
from tarry.replication.raft.progress import Peers
from tarry.replication.settings import ReplicationSettings
from tarry.replication.status import Role

__all__ = ["Consensus", "ConsensusViolated"]


class Consensus:
    def __init__(
        self,
        *,
        node: str,
        membership: Membership,
        journal: Journal,
        clock: Clock,
        rng: random.Random,
        settings: ReplicationSettings,
        applied_index: int,
        heartbeat: Callable[[float], bytes],
        known: Callable[[], bytes],
        told_all: Callable[[], bool] = lambda: True,
    ) -> None:
        self.node = node
        self._clock = clock
        self._settings = settings
        self._outbox = Outbox()
        self.progress = Peers(settings)
        self.transfer = Transfer()
        self._engine = Engine(
            node=node,
            members=journal.members or {},
            journal=journal,
            clock=clock,
            rng=rng,
            settings=settings,
            applied_index=applied_index,
            on_send=self._on_engine_send,
        )
        self.elections = Elections(
            node=node,
            engine=self._engine,
            journal=journal,
            membership=membership,
            outbox=self._outbox,
            transfer=self.transfer,
            clock=clock,
            rng=rng,
            settings=settings,
            known=known,
        )
        self._appending = Appending(
            engine=self._engine,
            journal=journal,
            peers=self.progress,
            outbox=self._outbox,
            elections=self.elections,
            clock=clock,
            settings=settings,
        )
        self._leading = Leading(
            engine=self._engine,
            journal=journal,
            peers=self.progress,
            outbox=self._outbox,
            elections=self.elections,
            transfer=self.transfer,
            clock=clock,
            settings=settings,
            applied_index=applied_index,
            heartbeat=heartbeat,
            told_all=told_all,
        )
        self._seen = (self._engine.role, self._engine.term)
        self._handlers: dict[str, Callable[[str, Any], None]] = {
            "append": self._appending.on_append,
            "appended": self._appending.on_appended,
            "need_snapshot": self._appending.on_need_snapshot,
            "vote_request": self.elections.on_vote_request,
            "vote": self.elections.on_vote,
            "pre_vote_request": self.elections.on_pre_vote_request,
            "pre_vote": self.elections.on_pre_vote,
            "term_notice": self.elections.on_term_notice,
            "timeout_now": self.elections.on_timeout_now,
            "heartbeat": self._leading.on_heartbeat,
            "heartbeat_reply": self._leading.on_heartbeat_reply,
        }

    # State

    @property
    def role(self) -> Role:
        return self._engine.role

    @property
    def term(self) -> int:
        return self._engine.term

    @property
    def leader(self) -> str | None:
        return self._engine.leader

    @property
    def commit_index(self) -> int:
        return self._engine.commit_index

    @property
    def no_op_index(self) -> int:
        """Index of this leadership's first entry: once it is committed, so are all entries before it."""
        return self._engine.no_op_index

    @property
    def voters(self) -> frozenset[str]:
        """The other members that vote."""
        return self._engine.voters

    @property
    def peers(self) -> frozenset[str]:
        """The other members and the learners."""
        return self._engine.voters | self._engine.learners

    def leads(self, term: int) -> bool:
        """Return whether it was elected in that term; `may_serve` says whether it may serve."""
        return self.role is Role.LEADER and self.term == term

    def clock_offsets_ms(self) -> list[tuple[float, float]]:
        """Return each other member's wall clock minus this node's, with its error, as far as measured."""
        offsets = (self.progress[peer].clock.offset_ms(self._clock) for peer in sorted(self.voters))
        return [offset for offset in offsets if offset is not None]

    def match_index(self, peer: str) -> int:
        return self._engine.match_index(peer)

    def may_serve(self, now: float) -> bool:
        return self._leading.may_serve(now)

    def may_propose(self, now: float) -> bool:
        """Return whether to take proposals: a leader without a lease may have been replaced."""
        return self._leading.may_propose(now)

    def knows_commits_by_lease(self, now: float) -> bool:
        return self._leading.knows_commits_by_lease(now)

    def confirmed_since(self, since: float) -> bool:
        """Return whether a majority has answered a heartbeat sent at `since` or later, and earlier terms'
        commits are known."""
        return self._leading.confirmed_since(since)

    @property
    def confirmed_s(self) -> float:
        """Send time of the latest heartbeats that a majority has answered, infinite where it is alone."""
        return self._leading.confirmed_s

    @property
    def elected_by(self) -> list[bytes]:
        """Dispatch states known to those who elected this replica, itself among them."""
        return self.elections.elected_by

    def beat(self) -> None:
        """Send heartbeats with the next tick, due or not."""
        self._leading.heartbeat_at = 0.0

    def stir(self) -> bool:
        """Return to the usual heartbeat interval; say whether the next tick must come sooner for that."""
        return self.role is Role.LEADER and self._leading.stir(self._clock.monotonic_s())

    def next_deadline(self) -> float:
        """Return the latest time of the next tick, monotonic, in seconds."""
        if self.role is not Role.LEADER:
            return self._engine.election_deadline
        due = min(self._leading.heartbeat_at, self._engine.append_deadline)
        return min(due, self.transfer.resend_at) if self.transfer.phase is Phase.HANDING_OVER else due

    def take_outbox(self) -> list[tuple[str, PeerMessage]]:
        return self._outbox.take()

    def take_heard(self) -> list[tuple[str, bytes]]:
        """Return (leader, dispatch state) of the heartbeats received since the last call."""
        return self._leading.take_heard()

    def take_snapshot_source(self) -> str | None:
        """Return the leader that said, since the last call, that this replica needs a snapshot."""
        return self._appending.take_snapshot_source()

    # What happens

    def append(self, payload: bytes) -> int | None:
        """Return the index of the new entry; None: refused."""
        return self._engine.append(payload)

    def change_membership(self, change: MembershipChange) -> int | None:
        """Return the index of the new entry; None: an earlier change or this term's no-op is uncommitted."""
        return None if self.transfer.running else self._engine.append(membership_payload(change))

    def add_learner(self, node: str) -> None:
        self._engine.add_learner(node)
        self._engine.reach(node, self.progress[node].linked)

    def drop_learner(self, node: str) -> None:
        self._engine.drop_learner(node)

    def begin_transfer(self, target: str, deadline: float) -> None:
        self.transfer.begin(target, deadline, self._clock.monotonic_s())

    def applied(self, index: int) -> None:
        self._leading.applied = index
        self._engine.applied(index)

    def link(self, peer: str, up: bool) -> None:
        """Note that the connection to a peer has opened or broken."""
        self._appending.link(peer, up)

    def tick(self) -> None:
        now = self._clock.monotonic_s()
        if self.role is not Role.LEADER:
            self.elections.consider(now)
        self._appending.open_flows(now)
        commit_before = self.commit_index
        beats = self.role is Role.LEADER and now >= self._leading.heartbeat_at
        if beats and self._engine.append_deadline < now + self._leading.interval_s / 2:
            self._engine.kick()  # one frame and one turn for both
        self._engine.tick()
        if self.role is Role.LEADER:
            if not self._appending.are_level():
                self._leading.stir(now)
            elif self._appending.settled():
                self._engine.rest_until(self._appending.sent_at + self._settings.append_idle_ms / 1000)
        self._observe()
        if self.role is Role.LEADER:
            if self.commit_index > commit_before:
                self._engine.kick_by(now + self._settings.commit_notice_ms / 1000)
            self._leading.advance_transfer(now)
            if now >= self._leading.heartbeat_at:
                self._leading.send_heartbeats(now)

    def receive(self, peer: str, message: PeerMessage) -> bool:
        """Handle a message; False: dropped, its term is one that no election leads to."""
        kind = message.WhichOneof("body")
        if not terms.is_plausible(terms.highest(message), self.term):
            return False
        if kind is not None and peer != self.node:
            self._handlers[kind](peer, getattr(message, kind))
            self._observe()
        return True

    # Inside

    def _observe(self) -> None:
        """Reset what depends on role and term once they have changed."""
        seen = (self._engine.role, self._engine.term)
        if seen == self._seen:
            return
        self._seen = seen
        for learner in self._engine.learners:
            self._engine.drop_learner(learner)
        self.elections.observe()
        self._appending.observe()
        self._leading.observe()

    def _on_engine_send(self, peer: str, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "append_entries":
            self._appending.send(peer, message)
        elif kind == "request_vote":
            self.elections.send_vote_request(peer, message)
        elif kind == "response_vote":
            self.elections.vote_for(peer, message["term"])
        elif kind != "next_node_idx":  # answered by the plan, not by the engine
            raise ConsensusViolated(f"the engine sends {kind}")
