"""Elections: who is asked, who counts, and how long a leader may rely on it."""

from __future__ import annotations

import math

from tarry.replication.raft.guard.flow_control import Flow
from tarry.replication.raft.guard.lease import Lease
from tarry.replication.raft.guard.votes import Ballot, Contact, PreVotes, up_to_date


def test_a_leader_that_was_just_heard_is_stuck_to() -> None:
    contact = Contact(0.3, heard=0.0)
    contact.hear("n1", 1, now=10.0)
    assert contact.fresh(10.29)
    assert not contact.fresh(10.3)


def test_a_replica_that_has_just_started_counts_as_having_heard_a_leader() -> None:
    assert Contact(0.3, heard=5.0).fresh(5.2)


def test_a_transfer_below_the_latest_number_heard_is_void_and_a_new_term_starts_over() -> None:
    contact = Contact(0.3, heard=0.0)
    contact.hear("n1", 1, now=1.0)
    assert not contact.allows_transfer(1)  # nothing is known of them yet
    contact.void_transfers_below(2)
    contact.void_transfers_below(0)
    assert not contact.allows_transfer(1)
    assert contact.allows_transfer(2)
    contact.hear("n1", 2, now=2.0)
    assert not contact.allows_transfer(3)
    contact.void_transfers_below(0)
    assert contact.allows_transfer(1)


def test_a_vote_counts_once_for_each_member() -> None:
    """Or duplicated votes elect two leaders of one term (i)."""
    ballot = Ballot()
    members = frozenset({"n2", "n3"})
    assert ballot.counts("n2", 5, members)
    assert not ballot.counts("n2", 5, members)
    assert not ballot.counts("stranger", 5, members)
    assert ballot.counts("n2", 6, members)


def test_pre_votes_count_for_their_own_round_from_members_only() -> None:
    votes, voters = PreVotes(), frozenset({"n2", "n3", "n4", "n5"})
    first = votes.begin()
    votes.grant("n2", first, voters)
    second = votes.begin()
    votes.grant("n3", first, voters)
    votes.grant("n4", second, voters)
    votes.grant("n4", second, voters)
    votes.grant("stranger", second, voters)
    assert not votes.won(voters)
    votes.grant("n5", second, voters)
    assert votes.won(voters)
    votes.cancel()
    assert not votes.won(voters)


def test_half_of_the_members_are_no_majority() -> None:
    votes, voters = PreVotes(), frozenset({"n2", "n3", "n4"})
    votes.grant("n2", votes.begin(), voters)
    assert not votes.won(voters)


def test_who_was_asked_for_patience_elects_nobody_for_so_much_longer() -> None:
    contact = Contact(0.3, heard=0.0)
    contact.hear("n1", 1, now=10.0, patience_s=0.15)
    contact.hear("n1", 1, now=10.1)
    assert contact.fresh(10.44)
    assert not contact.fresh(10.451)


def test_a_lone_member_wins_its_own_round() -> None:
    votes = PreVotes()
    votes.begin()
    assert votes.won(frozenset())


def test_the_log_with_the_later_term_is_the_better_one() -> None:
    assert up_to_date(3, 5, 2, 9)
    assert up_to_date(3, 5, 3, 5)
    assert not up_to_date(3, 5, 3, 6)
    assert not up_to_date(2, 9, 3, 5)


def test_a_lease_runs_from_when_the_majoritys_heartbeat_was_sent() -> None:
    lease, voters = Lease(), frozenset({"n2", "n3", "n4", "n5"})
    lease.begin(0.0)
    lease.echo("n2", 1.0, now=1.2, length_s=0.285)
    assert not lease.valid(1.2, voters)
    lease.echo("n3", 1.1, now=1.2, length_s=0.285)
    assert lease.confirmed(voters) == 1.0
    assert lease.valid(1.28, voters)
    assert not lease.valid(1.285, voters)


def test_a_promise_outlasts_a_later_and_shorter_one() -> None:
    lease, voters = Lease(), frozenset({"n2"})
    lease.echo("n2", 1.0, now=1.0, length_s=0.425)
    lease.echo("n2", 1.1, now=1.1, length_s=0.285)
    assert lease.valid(1.42, voters)
    assert not lease.valid(1.425, voters)


def test_answers_to_heartbeats_from_before_the_lease_began_do_not_count() -> None:
    lease, voters = Lease(), frozenset({"n2"})
    lease.begin(5.0)
    lease.echo("n2", 4.9, now=5.1, length_s=0.285)
    assert not lease.valid(5.1, voters)


def test_an_answer_that_names_a_time_to_come_does_not_count() -> None:
    lease = Lease()
    lease.echo("n2", 9.0, now=5.0, length_s=0.285)
    assert not lease.valid(5.0, frozenset({"n2"}))


def test_a_lone_member_needs_nobodys_leave() -> None:
    assert Lease().confirmed(frozenset()) == math.inf


def test_a_reset_asks_once_for_what_was_sent_before_it() -> None:
    """Or each of many appends under way behind a lost one has everything sent again."""
    flow = Flow(1000, 1000, delay_s=0.05, patience_s=0.25)
    first, second = flow.sent(10, now=0.0), flow.sent(10, now=0.0)
    assert flow.accepts_reset(first)
    assert not flow.accepts_reset(second)
    assert flow.accepts_reset(flow.sent(10, now=0.0))


def test_a_full_window_closes_until_answers_come() -> None:
    flow = Flow(100, 100, delay_s=0.05, patience_s=0.25)
    numbers = [flow.sent(50, now=0.0) for _ in range(2)]
    assert not flow.open(0.0)
    flow.answered(numbers[0], now=0.1)
    assert flow.open(0.1)


def test_a_peer_that_never_answers_is_tried_again() -> None:
    flow = Flow(100, 100, delay_s=0.05, patience_s=0.25)
    flow.sent(100, now=1.0)
    assert not flow.lost(1.2)
    assert flow.lost(1.3)
