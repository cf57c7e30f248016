"""One replica's consensus: the engine with every guard around it. Pure: messages and time in, values out.

        receive ──► elections       ─┐            ┌─► outbox
        tick    ──► log replication ─┼─► engine ──┤
                    heartbeats      ─┘            └─► state: role, term, commit index …

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
from tarry.replication.raft.context import Context
from tarry.replication.raft.elections import ConsensusViolated, Elections
from tarry.replication.raft.engine import Engine, EngineState
from tarry.replication.raft.guard import terms
from tarry.replication.raft.guard.transfer import Phase, Transfer
from tarry.replication.raft.heartbeats import Heartbeats
from tarry.replication.raft.log_replication import LogReplication
from tarry.replication.raft.membership import Membership
from tarry.replication.raft.outbox import Outbox
from tarry.replication.raft.progress import Peers
from tarry.replication.settings import ReplicationSettings
from tarry.replication.status import Hello, Role


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
        hello: Hello = Hello(),  # noqa: B008 - a value that never changes
        cluster_level: Callable[[], int] = lambda: 1,
        flush_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self.node = node
        self._clock = clock
        self._settings = settings
        self.outbox = Outbox()
        self.progress = Peers(settings)
        self.transfer = Transfer()
        self._engine = Engine(
            node=node,
            members=journal.members.addresses if journal.members else {},
            journal=journal,
            clock=clock,
            rng=rng,
            settings=settings,
            applied_index=applied_index,
            on_send=self._on_engine_send,
        )
        self.state: EngineState = self._engine
        context = Context(
            node=node,
            engine=self._engine,
            journal=journal,
            membership=membership,
            peers=self.progress,
            outbox=self.outbox,
            transfer=self.transfer,
            clock=clock,
            rng=rng,
            settings=settings,
            hello=hello,
            cluster_level=cluster_level,
            flush_ms=flush_ms,
        )
        self.elections = Elections(context, known)
        self.log_replication = LogReplication(context, self.elections)
        self.heartbeats = Heartbeats(
            context, self.elections, applied_index=applied_index, heartbeat=heartbeat, told_all=told_all
        )
        self._seen = (self._engine.role, self._engine.term)
        self._handlers: dict[str, Callable[[str, Any], None]] = {
            "append": self.log_replication.on_append,
            "appended": self.log_replication.on_appended,
            "need_snapshot": self.log_replication.on_need_snapshot,
            "vote_request": self.elections.on_vote_request,
            "vote": self.elections.on_vote,
            "pre_vote_request": self.elections.on_pre_vote_request,
            "pre_vote": self.elections.on_pre_vote,
            "term_notice": self.elections.on_term_notice,
            "timeout_now": self.elections.on_timeout_now,
            "heartbeat": self.heartbeats.on_heartbeat,
            "heartbeat_reply": self.heartbeats.on_heartbeat_reply,
        }

    def clock_offsets_ms(self, wall_ms: float) -> list[tuple[float, float]]:
        """Return each other member's wall clock minus this reading of ours, with its error, if measured."""
        clocks = (self.progress[peer].clock for peer in sorted(self._engine.voters))
        offsets = (clock.offset_ms(self._clock, wall_ms) for clock in clocks)
        return [offset for offset in offsets if offset is not None]

    def stir(self) -> bool:
        """Return to the usual heartbeat interval; say whether the next tick must come sooner for that."""
        return self._engine.role is Role.LEADER and self.heartbeats.stir(self._clock.monotonic_s())

    def next_deadline(self) -> float:
        """Return the latest time of the next tick, monotonic, in seconds."""
        if self._engine.role is not Role.LEADER:
            return self._engine.election_deadline
        due = min(self.heartbeats.heartbeat_at, self._engine.append_deadline)
        return min(due, self.transfer.resend_at) if self.transfer.phase is Phase.CAMPAIGNING else due

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

    def applied(self, index: int) -> None:
        self.heartbeats.applied = index
        self._engine.applied(index)

    def tick(self) -> None:
        """Do what is due: an election of those that do not lead, commits and sending of a leader."""
        now = self._clock.monotonic_s()
        if self._engine.role is not Role.LEADER:
            self.elections.consider(now)
        if self._engine.role is Role.LEADER:
            self._lead(now)
        self._observe()

    def _lead(self, now: float) -> None:
        self.log_replication.open_flows(now)
        commit_before = self._engine.commit_index
        soon = now + self.heartbeats.interval_s / 2
        if now >= self.heartbeats.heartbeat_at and self._engine.append_deadline < soon:
            self._engine.kick()  # one frame and one turn for both
        self._engine.tick()
        if self._engine.role is Role.LEADER:
            if not self.log_replication.are_level():
                self.heartbeats.stir(now)
            elif self.log_replication.settled():
                self._engine.rest_until(self.log_replication.sent_at + self._settings.append_idle_ms / 1000)
        self._observe()
        if self._engine.role is Role.LEADER:
            if self._engine.commit_index > commit_before:
                self._engine.kick_by(now + self._settings.commit_notice_ms / 1000)
            self.heartbeats.advance_transfer(now)
            if now >= self.heartbeats.heartbeat_at:
                self.heartbeats.send_heartbeats(now)

    def receive(self, peer: str, message: PeerMessage) -> bool:
        """Handle a message; False: dropped, its term is one that no election leads to."""
        kind = message.WhichOneof("body")
        if not terms.is_plausible(terms.highest(message), self._engine.term):
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
        self.log_replication.observe()
        self.heartbeats.observe()

    def _on_engine_send(self, peer: str, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "append_entries":
            self.log_replication.send(peer, message)
        elif kind == "request_vote":
            self.elections.send_vote_request(peer, message)
        elif kind == "response_vote":
            self.elections.vote_for(peer, message["term"])
        elif kind != "next_node_idx":  # answered by the plan, not by the engine
            raise ConsensusViolated(f"the engine sends {kind}")
