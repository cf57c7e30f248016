"""Elections of one replica: pre-votes, votes, terms; the rules are in guard/votes.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from tarry.proto.tarry_peer_pb2 import PreVote, PreVoteRequest, TermNotice, TimeoutNow, Vote, VoteRequest
from tarry.replication.raft.context import Context
from tarry.replication.raft.guard.votes import Ballot, Contact, PreVotes, up_to_date
from tarry.replication.status import Role

_ROUNDS: Final = (1 << 48) - 1
"""Of a journal's incarnation, the part that its rounds of pre-votes are numbered from.

A grant that an earlier journal of the node asked for is for none of them."""


class ConsensusViolated(Exception):
    """Raft's safety is violated, for example by two leaders of one term. The process must end."""


class Elections:
    def __init__(self, context: Context, known: Callable[[], bytes]) -> None:
        self._node = context.node
        self._engine = context.engine
        self._journal = context.journal
        self._membership = context.membership
        self._outbox = context.outbox
        self._transfer = context.transfer
        self._clock = context.clock
        self._rng = context.rng
        self._settings = context.settings
        promised_s = self._clock.monotonic_s() + self._settings.patience_ms / 1000
        self.contact = Contact(self._settings.election_min_ms / 1000, heard=promised_s)
        self._pre_votes = PreVotes(round=self._journal.incarnation & _ROUNDS)
        self._ballot = Ballot()
        self._campaign_transfer: int | None = None
        self._known = known
        self.elected_by: list[bytes] = []

    def consider(self, now: float) -> None:
        if now < self._engine.election_deadline:
            return
        if self.contact.fresh(now):
            self._engine.retry_election_at(self.contact.heard + self._settings.election_min_ms / 1000)
            return
        self._engine.retry_election_at(now + self._retry_s() * (1 + self._rng.random()))
        if not self._membership.votes(self._node):
            return
        request = PreVoteRequest(
            term=self._engine.term + 1,
            round=self._pre_votes.begin(),
            last_index=self._journal.last_index,
            last_term=self._journal.last_term,
            address=self._membership.added_at(self._node),
        )
        for voter in sorted(self._engine.voters):
            self._outbox.say(voter, pre_vote_request=request)
        self._campaign_if_won()

    def _retry_s(self) -> float:
        """Return the pause before the next round: short at first, for others may hear the leader longer."""
        retry_ms = self._settings.election_retry_ms << min(8, self._pre_votes.rounds_lost)
        return min(retry_ms, self._settings.election_min_ms) / 1000

    def on_pre_vote_request(self, peer: str, request: PreVoteRequest) -> None:
        last = self._journal
        behind = (request.last_term, request.last_index) < (last.last_term, last.last_index)
        members = self._membership.current() if behind else {}
        self._membership.hear_from(peer, request.address, (request.last_term, request.last_index))
        if request.term <= self._engine.term:
            self.notice(peer, members)
            return
        refused = self._engine.role is Role.LEADER or self.contact.fresh(self._clock.monotonic_s())
        if not refused and up_to_date(request.last_term, request.last_index, last.last_term, last.last_index):
            self._outbox.say(peer, pre_vote=PreVote(round=request.round))
        elif behind:
            self.notice(peer, members)

    def on_pre_vote(self, peer: str, vote: PreVote) -> None:
        self._pre_votes.grant(peer, vote.round, self._engine.voters)
        self._campaign_if_won()

    def _campaign_if_won(self) -> None:
        if self._pre_votes.won(self._engine.voters):
            self.campaign(None)

    def campaign(self, transfer_number: int | None) -> None:
        self._pre_votes.cancel()
        self._campaign_transfer = transfer_number
        self._engine.patience_s = 0.0
        self.elected_by = [self._known()]
        self._engine.campaign()

    def on_vote_request(self, peer: str, request: VoteRequest) -> None:
        if request.term < self._engine.term:
            self.notice(peer)
        elif request.term == self._engine.term and self._journal.voted_for == peer:
            last = self._journal
            # The first answer may have been lost, or the vote was for a journal that the peer has lost.
            if up_to_date(request.last_term, request.last_index, last.last_term, last.last_index):
                self.vote_for(peer, self._engine.term)
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
        """Return whether to vote: not while a leader is heard, unless that leader asked for the election."""
        if request.transfer and request.term == self._engine.term + 1:
            if self._engine.role is Role.LEADER:
                return self._transfer.running and request.transfer_number == self._transfer.number
            if self.contact.allows_transfer(request.transfer_number):
                return True
        return self._engine.role is not Role.LEADER and not self.contact.fresh(self._clock.monotonic_s())

    def on_vote(self, peer: str, vote: Vote) -> None:
        if (
            self._engine.role is Role.CANDIDATE
            and vote.term == self._engine.term
            and self._ballot.counts(peer, vote.term, self._engine.voters)
        ):
            self.elected_by.append(vote.state)
            self._engine.deliver(peer, {"type": "response_vote", "term": vote.term})

    def vote_for(self, peer: str, term: int) -> None:
        self._outbox.say(peer, vote=Vote(term=term, state=self._known()))

    def send_vote_request(self, peer: str, message: dict[str, Any]) -> None:
        request = VoteRequest(
            term=message["term"],
            last_index=message["last_log_index"],
            last_term=message["last_log_term"],
            transfer=self._campaign_transfer is not None,
            transfer_number=self._campaign_transfer or 0,
        )
        self._outbox.say(peer, vote_request=request)

    def on_timeout_now(self, peer: str, request: TimeoutNow) -> None:
        current = (
            request.term == self._engine.term
            and self._engine.leader == peer
            and self._engine.role is Role.FOLLOWER
        )
        if (
            current
            and self._membership.votes(self._node)
            and self.contact.allows_transfer(request.transfer_number)
        ):
            self.campaign(request.transfer_number)

    def on_term_notice(self, peer: str, notice: TermNotice) -> None:
        """Take over term and members: the sender may have been added while this replica was away."""
        if peer in self._membership.peers():
            self._membership.hear_of(notice.members)
        self.is_ahead(notice.term)

    def is_stale(self, peer: str, term: int) -> bool:
        """Return whether the term is older than ours, and tell the sender, which would go on for ever."""
        if term >= self._engine.term:
            return False
        self.notice(peer)
        return True

    def is_of_this_leadership(self, term: int) -> bool:
        """Return whether an answer is to this leadership; one to an earlier leadership proves nothing."""
        return self._engine.leads(term)

    def notice(self, peer: str, members: Mapping[str, str] = MappingProxyType({})) -> None:
        """Tell a peer the current term; `members`: those that the peer may not know yet."""
        self._outbox.say(peer, term_notice=TermNotice(term=self._engine.term, members=members))

    def is_ahead(self, term: int) -> bool:
        if term <= self._engine.term:
            return False
        self._engine.follow(term)
        return True

    def hear_leader(self, peer: str, term: int, patience_s: float = 0.0) -> None:
        self.contact.hear(peer, term, self._clock.monotonic_s(), patience_s)
        self._pre_votes.cancel()
        self._pre_votes.rounds_lost = 0

    def demand_one_leader(self, peer: str, term: int) -> None:
        """Raise ConsensusViolated if this replica leads the term that a peer claims to lead."""
        if self._engine.leads(term):
            raise ConsensusViolated(f"{peer} and {self._node} both lead term {term}")

    def observe(self) -> None:
        """Reset what depends on role and term."""
        self._pre_votes.cancel()
