"""One replica's consensus: the engine with every guard around it. Pure: messages and time in, values out.

        receive ──► guard ──► engine ──► guard ──► take_outbox
        tick    ──►                          └───► take_heard, commit_index, role …

The caller writes the journal between a call and the sending of what it put in the outbox.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from tarry.proto.tarry_peer_pb2 import (
    Append,
    Appended,
    Heartbeat,
    HeartbeatReply,
    MembershipChange,
    NeedSnapshot,
    PeerMessage,
    PreVote,
    PreVoteRequest,
    TermNotice,
    TimeoutNow,
    Vote,
    VoteRequest,
)
from tarry.replication.engine import Clock, Engine, membership_payload
from tarry.replication.guard import appends
from tarry.replication.guard.flow import Flow
from tarry.replication.guard.lease import Lease
from tarry.replication.guard.peer_clock import PeerClock
from tarry.replication.guard.transfer import Phase, Transfer
from tarry.replication.guard.votes import Ballot, Contact, PreVotes, up_to_date
from tarry.replication.journal import Journal
from tarry.replication.membership import Membership
from tarry.replication.settings import ReplicationSettings
from tarry.replication.status import Role


class ConsensusViolated(Exception):
    """Something that Raft rules out has been seen, such as two leaders of one term. The process must end."""


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
        heartbeat: Callable[[], bytes],
    ) -> None:
        self.node = node
        self._membership = membership
        self._journal = journal
        self._clock = clock
        self._rng = rng
        self._settings = settings
        self._heartbeat = heartbeat
        self._outbox: list[tuple[str, PeerMessage]] = []
        self._heard: list[tuple[str, bytes]] = []
        self._linked: set[str] = set()
        self._flows: dict[str, Flow] = {}
        self.peer_clocks: dict[str, PeerClock] = {}
        now = clock.monotonic()
        self._contact = Contact(settings.election_min_ms / 1000, heard=now)
        self._pre_votes = PreVotes()
        self._ballot = Ballot()
        self._lease = Lease(settings.lease_ms / 1000)
        self.transfer = Transfer()
        self._campaign_transfer: int | None = None
        self._heartbeat_at = 0.0
        self._snapshot_source: str | None = None
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
        self._applied = applied_index
        self._seen = (self._engine.role, self._engine.term)

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
    def voters(self) -> frozenset[str]:
        """The other members that vote."""
        return self._engine.voters

    @property
    def learners(self) -> frozenset[str]:
        return self._engine.learners

    def match_index(self, peer: str) -> int:
        return self._engine.match_index(peer)

    def linked(self, peer: str) -> bool:
        return peer in self._linked

    def has_lease(self, now: float) -> bool:
        """No other replica can have been elected by now."""
        return self.role is Role.LEADER and self._lease.valid(now, self.voters)

    def may_serve(self, now: float) -> bool:
        return self.has_lease(now) and not self.transfer.running and self._applied >= self._engine.no_op_index

    def may_propose(self, now: float) -> bool:
        """A leader without a lease takes nothing on: it may have been replaced."""
        return self.role is Role.LEADER and not self.transfer.running and self._lease.valid(now, self.voters)

    @property
    def no_op_index(self) -> int:
        return self._engine.no_op_index

    def knows_commits_by_lease(self, now: float) -> bool:
        return self.has_lease(now) and self.commit_index >= self.no_op_index

    def confirmed_since(self, since: float) -> bool:
        """Whether a majority has answered a heartbeat sent at `since` or later, and earlier terms' commits
        are known."""
        leads = self.role is Role.LEADER and self.commit_index >= self._engine.no_op_index
        return leads and self._lease.confirmed(self.voters) >= since

    def next_deadline(self) -> float:
        """When to tick at the latest, by the monotonic clock."""
        if self.role is Role.LEADER:
            due = min(self._heartbeat_at, self._engine.append_deadline)
            return min(due, self.transfer.resend_at) if self.transfer.phase is Phase.HANDING_OVER else due
        return self._engine.election_deadline

    def take_outbox(self) -> list[tuple[str, PeerMessage]]:
        outbox, self._outbox = self._outbox, []
        return outbox

    def take_heard(self) -> list[tuple[str, bytes]]:
        """(leader, dispatcher's state) of the heartbeats received."""
        heard, self._heard = self._heard, []
        return heard

    # What happens

    def append(self, payload: bytes) -> int | None:
        """Index of the new entry; None: refused."""
        return self._engine.append(payload)

    def change_membership(self, change: MembershipChange) -> int | None:
        """Index of the new entry; None: refused, an earlier change or this term's no-op being uncommitted."""
        return None if self.transfer.running else self._engine.append(membership_payload(change))

    def add_learner(self, node: str) -> None:
        self._engine.add_learner(node)
        self._engine.reach(node, node in self._linked)

    def drop_learner(self, node: str) -> None:
        self._engine.drop_learner(node)

    def take_snapshot_source(self) -> str | None:
        """The leader that has said that this replica needs a snapshot."""
        source, self._snapshot_source = self._snapshot_source, None
        return source

    def applied(self, index: int) -> None:
        self._applied = index
        self._engine.applied(index)

    def link(self, peer: str, up: bool) -> None:
        """The way to a peer has opened or broken."""
        (self._linked.add if up else self._linked.discard)(peer)
        self._flow(peer).forget()
        self._engine.reach(peer, up)
        if up:
            self._engine.kick()

    def tick(self) -> None:
        now = self._clock.monotonic()
        if self.role is not Role.LEADER:
            self._consider_election(now)
        self._open_flows(now)
        commit_before = self.commit_index
        self._engine.tick()
        self._observe()
        if self.role is Role.LEADER:
            if self.commit_index > commit_before:
                self._engine.kick_by(now + self._settings.commit_notice_ms / 1000)
            self._advance_transfer(now)
            if now >= self._heartbeat_at:
                self._send_heartbeats(now)

    def receive(self, peer: str, message: PeerMessage) -> None:
        kind = message.WhichOneof("body")
        if kind is not None and peer != self.node:
            self._HANDLERS[kind](self, peer, getattr(message, kind))
            self._observe()

    # Appends

    def _on_append(self, peer: str, append: Append) -> None:
        if self._is_stale(peer, append.term):
            return
        if append.term == self.term and self.role is Role.LEADER:
            raise ConsensusViolated(f"{peer} and {self.node} both lead term {self.term}")
        self._hear_leader(peer, append.term)
        plan = appends.plan(append, self._journal, self.commit_index)
        first = plan.prev_index + 1
        self._engine.deliver(
            peer,
            {
                "type": "append_entries",
                "term": append.term,
                "commit_index": plan.commit_index,
                "entries": [(entry.payload, first + i, entry.term) for i, entry in enumerate(plan.entries)],
                "prevLogIdx": plan.prev_index,
                "prevLogTerm": plan.prev_term,
            },
        )
        self._send(
            peer,
            appended=Appended(
                term=self.term,
                sequence=append.sequence,
                next_index=plan.next_index,
                success=plan.success,
                reset=not plan.success,
            ),
        )

    def _on_appended(self, peer: str, answer: Appended) -> None:
        if self._is_ahead(answer.term) or not self._is_of_this_leadership(answer.term):
            return
        if peer not in self.voters | self.learners or answer.next_index > self._journal.last_index + 1:
            return
        flow, now = self._flow(peer), self._clock.monotonic()
        flow.answered(answer.sequence, now)
        if answer.reset and not flow.accepts_reset(answer.sequence):
            return
        following = self._engine.next_index(peer)
        self._engine.deliver(
            peer,
            {
                "type": "next_node_idx",
                "next_node_idx": answer.next_index,
                "reset": answer.reset,
                "success": answer.success,
            },
        )
        if answer.success:
            self._engine.keep_next_index(peer, following)
        if self._engine.next_index(peer) <= self._journal.last_index:
            self._engine.kick()

    def _on_need_snapshot(self, peer: str, need: NeedSnapshot) -> None:
        """Unless there is one by now, which the leader cannot know: then it is told where to go on."""
        if self._is_stale(peer, need.term) or need.term != self.term:
            return
        self._hear_leader(peer, need.term)
        if self.commit_index < need.first_index:
            self._snapshot_source = peer
            return
        going_on = Appended(
            term=self.term, sequence=need.sequence, next_index=self.commit_index + 1, reset=True
        )
        self._send(peer, appended=going_on)

    # Elections

    def _consider_election(self, now: float) -> None:
        if now < self._engine.election_deadline:
            return
        if self._contact.fresh(now):
            self._engine.retry_election_at(self._contact.heard + self._settings.election_min_ms / 1000)
            return
        self._engine.retry_election_at(now + self._retry_s() * (1 + self._rng.random()))
        if not self._votes():
            return
        request = PreVoteRequest(
            term=self.term + 1,
            round=self._pre_votes.begin(),
            last_index=self._journal.last_index,
            last_term=self._journal.last_term,
        )
        for voter in sorted(self.voters):
            self._send(voter, pre_vote_request=request)
        self._campaign_if_won()

    def _retry_s(self) -> float:
        """Soon at first, for others may have heard the leader a little longer; then ever more rarely."""
        retry_ms = self._settings.election_retry_ms << min(8, self._pre_votes.rounds_lost)
        return min(retry_ms, self._settings.election_min_ms) / 1000

    def _votes(self) -> bool:
        """Whether this replica is a member, not a learner nor removed (L12)."""
        return self.node in self._membership.current()

    def _on_pre_vote_request(self, peer: str, request: PreVoteRequest) -> None:
        if request.term <= self.term:
            self._notice(peer)
            return
        last = self._journal
        refused = self.role is Role.LEADER or self._contact.fresh(self._clock.monotonic())
        if not refused and up_to_date(request.last_term, request.last_index, last.last_term, last.last_index):
            self._send(peer, pre_vote=PreVote(round=request.round))

    def _on_pre_vote(self, peer: str, vote: PreVote) -> None:
        self._pre_votes.grant(peer, vote.round, self.voters)
        self._campaign_if_won()

    def _campaign_if_won(self) -> None:
        if self._pre_votes.won(self.voters):
            self._campaign(None)

    def _campaign(self, transfer_number: int | None) -> None:
        self._pre_votes.cancel()
        self._campaign_transfer = transfer_number
        self._engine.campaign()

    def _on_vote_request(self, peer: str, request: VoteRequest) -> None:
        if request.term < self.term:
            self._notice(peer)
        elif request.term == self.term and self._journal.voted_for == peer:
            self._send(peer, vote=Vote(term=self.term))  # the first answer may have been lost (L18)
        elif self._may_elect(request):
            self._engine.deliver(
                peer,
                {
                    "type": "request_vote",
                    "term": request.term,
                    "last_log_index": request.last_index,
                    "last_log_term": request.last_term,
                },
            )

    def _may_elect(self, request: VoteRequest) -> bool:
        """Not while a leader is heard, unless that very leader has asked for the election."""
        if request.transfer and request.term == self.term + 1:
            if self.role is Role.LEADER:
                return self.transfer.running and request.transfer_number == self.transfer.number
            if self._contact.allows_transfer(request.transfer_number):
                return True
        return self.role is not Role.LEADER and not self._contact.fresh(self._clock.monotonic())

    def _on_vote(self, peer: str, vote: Vote) -> None:
        if (
            self.role is Role.CANDIDATE
            and vote.term == self.term
            and self._ballot.counts(peer, vote.term, self.voters)
        ):
            self._engine.deliver(peer, {"type": "response_vote", "term": vote.term})

    def _on_term_notice(self, peer: str, notice: TermNotice) -> None:
        self._is_ahead(notice.term)

    def _is_stale(self, peer: str, term: int) -> bool:
        """Said by a leader of an older term: it is told, or it would go on for ever (L16)."""
        if term >= self.term:
            return False
        self._notice(peer)
        return True

    def _is_of_this_leadership(self, term: int) -> bool:
        """An answer to an earlier leadership says nothing about this one (S6)."""
        return term == self.term and self.role is Role.LEADER

    def _notice(self, peer: str) -> None:
        self._send(peer, term_notice=TermNotice(term=self.term))

    def _is_ahead(self, term: int) -> bool:
        if term <= self.term:
            return False
        self._engine.follow(term)
        return True

    def _hear_leader(self, peer: str, term: int) -> None:
        self._contact.hear(peer, term, self._clock.monotonic())
        self._pre_votes.cancel()
        self._pre_votes.rounds_lost = 0

    # Heartbeats

    def _send_heartbeats(self, now: float) -> None:
        self._heartbeat_at = now + self._settings.heartbeat_ms / 1000
        beat = Heartbeat(
            term=self.term,
            sent=now,
            wall_ms=self._clock.wall_ms(),
            transfer_number=self.transfer.number,
            state=self._heartbeat(),
        )
        for peer in sorted(self.voters | self.learners):
            self._send(peer, heartbeat=beat)

    def _on_heartbeat(self, peer: str, beat: Heartbeat) -> None:
        if self._is_stale(peer, beat.term):
            return
        if beat.term == self.term and self.role is Role.LEADER:
            raise ConsensusViolated(f"{peer} and {self.node} both lead term {self.term}")
        if beat.term > self.term or self.leader != peer or self.role is Role.CANDIDATE:
            self._engine.follow(beat.term, peer)
        self._hear_leader(peer, beat.term)
        self._contact.transfer_number = max(self._contact.transfer_number, beat.transfer_number)
        self._engine.postpone_election()
        self._clock_of(peer).hear(self._clock, beat.wall_ms)
        self._heard.append((peer, beat.state))
        reply = HeartbeatReply(term=self.term, sent=beat.sent, wall_ms=self._clock.wall_ms())
        self._send(peer, heartbeat_reply=reply)

    def _on_heartbeat_reply(self, peer: str, reply: HeartbeatReply) -> None:
        if self._is_ahead(reply.term) or not self._is_of_this_leadership(reply.term):
            return
        now = self._clock.monotonic()
        self._lease.echo(peer, reply.sent, now)
        self._clock_of(peer).answer(self._clock, reply.sent, reply.wall_ms)
        self._engine.heard(peer)

    # Transfer

    def begin_transfer(self, target: str, deadline: float) -> None:
        self.transfer.begin(target, deadline)

    def _advance_transfer(self, now: float) -> None:
        transfer = self.transfer
        if not transfer.running:
            return
        if now >= transfer.deadline:
            transfer.give_up()
            self._lease.begin(now)
            self._send_heartbeats(now)
        elif transfer.phase is Phase.DRAINING:
            last = self._journal.last_index
            if self._applied >= last and self.match_index(transfer.target) >= last:
                transfer.tell(now)
                self._send_heartbeats(now)
        elif transfer.phase is Phase.TELLING and self._lease.has_echoed(transfer.target, transfer.told_at):
            transfer.hand_over()
            self._lease.begin(now)
        if transfer.phase is Phase.HANDING_OVER and now >= transfer.resend_at:
            transfer.resend_at = now + self._settings.transfer_resend_ms / 1000
            request = TimeoutNow(term=self.term, transfer_number=transfer.number)
            self._send(transfer.target, timeout_now=request)

    def _on_timeout_now(self, peer: str, request: TimeoutNow) -> None:
        current = request.term == self.term and self.leader == peer and self.role is Role.FOLLOWER
        if current and self._votes() and self._contact.allows_transfer(request.transfer_number):
            self._campaign(request.transfer_number)

    # Inside

    def _observe(self) -> None:
        """What follows from a change of role or term."""
        seen = (self._engine.role, self._engine.term)
        if seen == self._seen:
            return
        self._seen = seen
        self._lease.begin(self._clock.monotonic())
        self.transfer.lead()
        self._pre_votes.cancel()
        self._heartbeat_at = 0.0
        for learner in self.learners:
            self._engine.drop_learner(learner)
        for flow in self._flows.values():
            flow.forget()

    def _open_flows(self, now: float) -> None:
        """The engine sends to whom it thinks connected: that is how it is held back (L3, L6)."""
        for peer, flow in self._flows.items():
            if flow.lost(now):
                flow.forget()
            self._engine.reach(peer, peer in self._linked and flow.open(now))

    def _on_engine_send(self, peer: str, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "append_entries":
            self._send_append(peer, message)
        elif kind == "request_vote":
            self._send_vote_request(peer, message)
        elif kind == "response_vote":
            self._send(peer, vote=Vote(term=message["term"]))
        elif kind != "next_node_idx":  # answered by the plan, not by the engine
            raise ConsensusViolated(f"the engine sends {kind}")

    def _send_append(self, peer: str, message: dict[str, Any]) -> None:
        flow, now = self._flow(peer), self._clock.monotonic()
        if "serialized" in message:
            first, number = self._journal.first_index, flow.sent(0, now)
            need = NeedSnapshot(term=self.term, first_index=first, sequence=number)
            self._send(peer, need_snapshot=need)
            flow.close_until(now + self._settings.heartbeat_ms / 1000)
            self._engine.reach(peer, False)
            return
        entries = message["entries"]
        size_bytes = sum(len(entry[0]) for entry in entries)
        sent = PeerMessage()
        append = sent.append  # filled in place: a copy of a megabyte costs as much as sending it
        append.term = message["term"]
        append.prev_index, append.prev_term = message["prevLogIdx"], message["prevLogTerm"]
        append.commit_index = message["commit_index"]
        append.sequence = flow.sent(size_bytes, now)
        for payload, _, term in entries:
            append.entries.add(term=term, payload=payload)
        self._outbox.append((peer, sent))
        if not flow.open(now):
            self._engine.reach(peer, False)

    def _send_vote_request(self, peer: str, message: dict[str, Any]) -> None:
        request = VoteRequest(
            term=message["term"],
            last_index=message["last_log_index"],
            last_term=message["last_log_term"],
            transfer=self._campaign_transfer is not None,
            transfer_number=self._campaign_transfer or 0,
        )
        self._send(peer, vote_request=request)

    def _send(self, peer: str, **body: Any) -> None:
        self._outbox.append((peer, PeerMessage(**body)))

    def _flow(self, peer: str) -> Flow:
        if peer not in self._flows:
            settings = self._settings
            self._flows[peer] = Flow(settings.window_bytes_max, settings.fallback_ms / 1000)
        return self._flows[peer]

    def _clock_of(self, peer: str) -> PeerClock:
        return self.peer_clocks.setdefault(peer, PeerClock())

    _HANDLERS: ClassVar[Mapping[str, Callable[[Consensus, str, Any], None]]] = {
        "append": _on_append,
        "appended": _on_appended,
        "vote_request": _on_vote_request,
        "vote": _on_vote,
        "pre_vote_request": _on_pre_vote_request,
        "pre_vote": _on_pre_vote,
        "term_notice": _on_term_notice,
        "timeout_now": _on_timeout_now,
        "heartbeat": _on_heartbeat,
        "heartbeat_reply": _on_heartbeat_reply,
        "need_snapshot": _on_need_snapshot,
    }
