"""Rules of pre-votes and votes.

Stickiness and pre-vote (Ongaro's dissertation §4.2.3, §9.6): a replica that hears its leader elects nobody
else, and asks whether it could win before it raises its term. The leader's lease rests on the first.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field


@dataclass(slots=True)
class Contact:
    """Last contact with the leader of the current term, by the monotonic clock in seconds; later than that
    by the patience it asked for.

    A replica that has just started counts as having heard one: it may have promised so before.
    """

    election_min_s: float
    heard: float
    leader: str | None = None
    term: int = 0
    transfer_number: int | None = None
    """The highest that this leader's heartbeats have carried: lower ones are void (see transfer.py).

    None: this replica has heard no heartbeat of its since it started, and may have forgotten one.
    """

    def hear(self, leader: str, term: int, now: float, patience_s: float = 0.0) -> None:
        if term != self.term:
            self.leader, self.term, self.transfer_number = leader, term, None
        self.heard = max(self.heard, now + patience_s)

    def fresh(self, now: float) -> bool:
        return now - self.heard < self.election_min_s

    def void_transfers_below(self, number: int) -> None:
        self.transfer_number = max(self.transfer_number or 0, number)

    def allows_transfer(self, number: int) -> bool:
        return self.transfer_number is not None and number >= self.transfer_number


@dataclass(slots=True)
class PreVotes:
    """One candidate's rounds of asking. A grant counts once, for its own round, from a member."""

    round: int = 0
    rounds_lost: int = 0
    open: bool = False
    granted: set[str] = field(default_factory=set)

    def begin(self) -> int:
        self.round += 1
        self.rounds_lost += self.open
        self.open = True
        self.granted.clear()
        return self.round

    def cancel(self) -> None:
        self.open = False

    def grant(self, peer: str, round_: int, voters: Set[str]) -> None:
        if self.open and round_ == self.round and peer in voters:
            self.granted.add(peer)

    def won(self, voters: Set[str]) -> bool:
        """Return whether a majority has granted; `voters`: the other members."""
        return self.open and is_majority(1 + len(self.granted & voters), len(voters) + 1)


@dataclass(slots=True)
class Ballot:
    """Votes received in one term. The engine counts answers, not voters: each member may answer once."""

    term: int = 0
    voters: set[str] = field(default_factory=set)

    def counts(self, peer: str, term: int, members: Set[str]) -> bool:
        if term != self.term:
            self.term = term
            self.voters.clear()
        if peer not in members or peer in self.voters:
            return False
        self.voters.add(peer)
        return True


def up_to_date(last_term: int, last_index: int, own_term: int, own_index: int) -> bool:
    """Return whether a log that ends so may lead one that ends like ours (Raft §5.4.1)."""
    return (last_term, last_index) >= (own_term, own_index)


def is_majority(count: int, members: int) -> bool:
    return 2 * count > members
