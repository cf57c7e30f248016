"""One replica among peers that say what they should not, twice, late, or out of date."""

from __future__ import annotations

import pytest

from tarry.proto.tarry_peer_pb2 import (
    Append,
    Appended,
    Heartbeat,
    HeartbeatReply,
    LoggedEntry,
    MembershipChange,
    NeedSnapshot,
    PreVote,
    PreVoteRequest,
    TermNotice,
    TimeoutNow,
    Vote,
    VoteRequest,
)
from tarry.replication.consensus import ConsensusViolated
from tarry.replication.payload import entry_payload
from tarry.replication.status import Role
from tests.replication.lone_consensus import Lone, kinds


def vote_request(term: int, **more: int | bool) -> VoteRequest:
    return VoteRequest(term=term, last_index=100, last_term=term - 1, **more)  # type: ignore[arg-type]


def test_a_replica_asks_before_it_raises_its_term() -> None:
    lone = Lone()
    said = lone.tick(after_s=1.0)
    assert kinds(said) == [("n2", "pre_vote_request"), ("n3", "pre_vote_request")]
    assert (lone.consensus.term, lone.role()) == (0, Role.FOLLOWER)


def test_a_majority_of_pre_votes_lets_it_campaign_and_of_votes_lead() -> None:
    lone = Lone()
    lone.lead()
    assert lone.consensus.term == 1
    assert lone.consensus.leader == "n1"


def test_a_vote_given_twice_counts_once() -> None:
    """Or two leaders of one term are elected (i)."""
    lone = Lone(size=5)
    lone.tick(after_s=1.0)
    for peer in ("n2", "n3"):
        lone.receive(peer, pre_vote=PreVote(round=1))
    assert lone.role() is Role.CANDIDATE
    for _ in range(3):
        lone.receive("n2", vote=Vote(term=1))
    lone.receive("stranger", vote=Vote(term=1))
    assert lone.role() is Role.CANDIDATE
    lone.receive("n3", vote=Vote(term=1))
    assert lone.role() is Role.LEADER


def test_a_replica_that_hears_its_leader_neither_elects_another_nor_raises_its_term() -> None:
    lone = Lone()
    lone.follow("n2")
    assert lone.receive("n3", vote_request=vote_request(term=9)) == []
    assert (
        lone.receive("n3", pre_vote_request=PreVoteRequest(term=9, round=1, last_index=99, last_term=8)) == []
    )
    assert lone.consensus.term == 1


def test_a_replica_that_has_just_started_elects_nobody() -> None:
    """It may have told a leader that it would not (the lease rests on it)."""
    lone = Lone()
    assert lone.receive("n3", vote_request=vote_request(term=1)) == []
    lone.tick(after_s=0.31)
    assert ("n3", "vote") in kinds(lone.receive("n3", vote_request=vote_request(term=1)))


def test_a_vote_that_was_lost_is_given_again_and_to_nobody_else() -> None:
    lone = Lone()
    lone.clock.now += 0.5
    assert kinds(lone.receive("n3", vote_request=vote_request(term=5))) == [("n3", "vote")]
    assert kinds(lone.receive("n3", vote_request=vote_request(term=5))) == [("n3", "vote")]
    lone.clock.now += 0.5
    assert lone.receive("n2", vote_request=vote_request(term=5)) == []


def test_a_vote_outlives_a_restart() -> None:
    lone = Lone()
    lone.clock.now += 0.5
    lone.receive("n3", vote_request=vote_request(term=5))
    lone.start()
    lone.clock.now += 0.5
    assert lone.receive("n2", vote_request=vote_request(term=5)) == []
    assert lone.consensus.term == 5


@pytest.mark.parametrize(
    "body",
    [
        {"append": Append(term=1)},
        {"heartbeat": Heartbeat(term=1)},
        {"vote_request": VoteRequest(term=1)},
        {"pre_vote_request": PreVoteRequest(term=1)},
        {"need_snapshot": NeedSnapshot(term=1)},
    ],
)
def test_whoever_speaks_in_an_older_term_is_told(body: dict[str, object]) -> None:
    """Or a leader of an older term, whom nobody answers, never steps down."""
    lone = Lone()
    lone.follow("n2", term=4)
    said = lone.receive("n3", **body)
    assert kinds(said) == [("n3", "term_notice")]
    assert said[0][1].term_notice.term == 4


def test_a_leader_that_is_told_of_a_later_term_steps_down() -> None:
    lone = Lone()
    lone.lead()
    lone.receive("n2", term_notice=TermNotice(term=7))
    assert (lone.role(), lone.consensus.term, lone.consensus.leader) == (Role.FOLLOWER, 7, None)


def test_two_leaders_of_one_term_stop_the_process() -> None:
    lone = Lone()
    lone.lead()
    with pytest.raises(ConsensusViolated):
        lone.receive("n2", append=Append(term=1, prev_index=1))
    with pytest.raises(ConsensusViolated):
        lone.receive("n2", heartbeat=Heartbeat(term=1))


def test_an_answer_to_an_earlier_leadership_counts_for_nothing() -> None:
    """Or a leader believes that a follower has what it lacks (j)."""
    lone = Lone()
    lone.lead()
    lone.receive("n3", term_notice=TermNotice(term=7))
    lone.lead()
    lone.receive("n2", appended=Appended(term=1, sequence=1, next_index=3, success=True))
    assert lone.consensus.match_index("n2") == 0


def test_an_answer_from_a_stranger_or_beyond_the_log_counts_for_nothing() -> None:
    lone = Lone()
    lone.lead()
    lone.receive("n9", appended=Appended(term=1, sequence=1, next_index=3, success=True))
    lone.receive("n2", appended=Appended(term=1, sequence=1, next_index=99, success=True))
    lone.tick()
    assert (lone.consensus.match_index("n2"), lone.consensus.commit_index) == (0, 1)


def test_a_late_answer_of_a_removed_member_does_no_harm() -> None:
    """The engine raises KeyError (n)."""
    lone = Lone()
    lone.lead()
    commit_all(lone)
    assert lone.consensus.change_membership(MembershipChange(remove=True, node="n3")) is not None
    lone.receive("n3", appended=Appended(term=1, sequence=1, next_index=3, success=True))
    lone.tick()
    assert lone.consensus.voters == {"n2"}


def test_a_second_change_of_members_waits_for_the_first() -> None:
    """Or an isolated leader removes its peers one by one and is its own majority (k)."""
    lone = Lone()
    lone.lead()
    assert lone.consensus.change_membership(MembershipChange(remove=True, node="n3")) is None
    commit_all(lone)
    assert lone.consensus.change_membership(MembershipChange(remove=True, node="n3")) is not None
    assert lone.consensus.change_membership(MembershipChange(remove=True, node="n2")) is None
    assert lone.consensus.voters == {"n2"}


def test_a_removed_member_no_longer_campaigns() -> None:
    """Or it disturbs the others for ever (u)."""
    lone = Lone()
    removal = b"\2" + MembershipChange(remove=True, node="n1").SerializeToString()
    entries = [LoggedEntry(term=1, payload=removal)]
    lone.receive("n2", append=Append(term=1, prev_index=1, prev_term=0, entries=entries, sequence=1))
    for _ in range(20):
        assert lone.tick(after_s=0.5) == []


def test_a_change_of_members_that_is_cut_from_the_log_is_taken_back() -> None:
    lone = Lone()
    removal = b"\2" + MembershipChange(remove=True, node="n3").SerializeToString()
    entries = [LoggedEntry(term=1, payload=removal)]
    lone.receive("n2", append=Append(term=1, prev_index=1, prev_term=0, entries=entries, sequence=1))
    assert lone.consensus.voters == {"n2"}
    entries = [LoggedEntry(term=2, payload=entry_payload(b""))]
    lone.receive("n3", append=Append(term=2, prev_index=1, prev_term=0, entries=entries, sequence=1))
    assert lone.consensus.voters == {"n2", "n3"}


def test_a_change_of_members_counts_from_the_log_also_after_a_restart() -> None:
    lone = Lone()
    removal = b"\2" + MembershipChange(remove=True, node="n3").SerializeToString()
    entries = [LoggedEntry(term=1, payload=removal)]
    lone.receive("n2", append=Append(term=1, prev_index=1, prev_term=0, entries=entries, sequence=1))
    lone.start()
    assert lone.consensus.voters == {"n2"}


def commit_all(lone: Lone) -> None:
    last = lone.journal.last_index
    for peer in lone.peers:
        lone.receive(
            peer, appended=Appended(term=lone.consensus.term, sequence=1, next_index=last + 1, success=True)
        )
    lone.tick()
    assert lone.consensus.commit_index == last
    lone.consensus.applied(last)


def answer_heartbeats(lone: Lone, *peers: str) -> None:
    beats = [(peer, message.heartbeat) for peer, message in lone.said if message.HasField("heartbeat")]
    for peer in peers:
        sent = max(beat.sent for to, beat in beats if to == peer)
        reply = HeartbeatReply(term=lone.consensus.term, sent=sent, wall_ms=0)
        lone.receive(peer, heartbeat_reply=reply)


def test_a_leader_serves_once_a_majority_has_answered_and_its_own_entry_is_applied() -> None:
    lone = Lone()
    lone.lead()
    assert not lone.consensus.may_serve(lone.clock.now)
    answer_heartbeats(lone, "n2")
    assert not lone.consensus.may_serve(lone.clock.now)
    commit_all(lone)
    assert lone.consensus.may_serve(lone.clock.now)
    assert lone.consensus.may_serve(lone.clock.now + 0.28)
    assert not lone.consensus.may_serve(lone.clock.now + 0.29)


def test_a_lease_lasts_from_the_sending_however_late_the_answer_comes() -> None:
    lone = Lone()
    lone.lead()
    commit_all(lone)
    sent = lone.clock.now
    lone.clock.now += 0.2
    answer_heartbeats(lone, "n2")
    assert lone.consensus.may_serve(sent + 0.28)
    assert not lone.consensus.may_serve(sent + 0.29)


def test_a_leader_without_answers_steps_down_before_another_can_be_elected() -> None:
    lone = Lone()
    lone.lead()
    answer_heartbeats(lone, "n2", "n3")
    lone.tick(after_s=0.26)
    assert lone.role() is Role.FOLLOWER


def serving() -> Lone:
    lone = Lone()
    lone.lead()
    commit_all(lone)
    answer_heartbeats(lone, "n2", "n3")
    return lone


def begin_transfer(lone: Lone) -> TimeoutNow:
    lone.consensus.begin_transfer("n2", deadline=lone.clock.now + 1)
    lone.tick()
    answer_heartbeats(lone, "n2", "n3")
    said = lone.tick()
    return next(message.timeout_now for _, message in said if message.HasField("timeout_now"))


def test_a_leader_that_hands_over_serves_no_more_and_lets_its_successor_be_elected() -> None:
    lone = serving()
    request = begin_transfer(lone)
    assert not lone.consensus.may_serve(lone.clock.now)
    wish = vote_request(term=2, transfer=True, transfer_number=request.transfer_number)
    assert kinds(lone.receive("n2", vote_request=wish)) == [("n2", "vote")]
    assert lone.role() is Role.FOLLOWER


def test_a_transfer_that_was_given_up_cannot_come_true_later() -> None:
    lone = serving()
    request = begin_transfer(lone)
    lone.tick(after_s=0.2)
    commit_all(lone)
    answer_heartbeats(lone, "n2", "n3")
    lone.consensus.transfer.deadline = lone.clock.now
    lone.tick()
    assert not lone.consensus.may_serve(lone.clock.now)
    answer_heartbeats(lone, "n2", "n3")
    assert lone.consensus.may_serve(lone.clock.now)
    wish = vote_request(term=2, transfer=True, transfer_number=request.transfer_number)
    assert lone.receive("n2", vote_request=wish) == []
    assert lone.role() is Role.LEADER


def test_a_follower_that_has_heard_that_a_transfer_is_over_takes_no_part_in_it() -> None:
    lone = Lone()
    lone.follow("n2")
    lone.receive("n2", heartbeat=Heartbeat(term=1, sent=1.0, transfer_number=2))
    lone.receive("n2", timeout_now=TimeoutNow(term=1, transfer_number=1))
    assert lone.role() is Role.FOLLOWER
    assert lone.receive("n3", vote_request=vote_request(term=2, transfer=True, transfer_number=1)) == []
    lone.receive("n2", timeout_now=TimeoutNow(term=1, transfer_number=3))
    assert lone.role() is Role.CANDIDATE


def test_only_the_leader_can_ask_for_a_transfer() -> None:
    lone = Lone()
    lone.follow("n2")
    lone.receive("n3", timeout_now=TimeoutNow(term=1, transfer_number=1))
    assert lone.role() is Role.FOLLOWER


def test_a_follower_that_lacks_what_was_compacted_is_told_once_per_heartbeat() -> None:
    """The engine would send thousands of messages in one tick (s)."""
    lone = serving()
    for _ in range(20):
        lone.consensus.append(entry_payload(b"x"))
    lone.tick()
    commit_all(lone)
    lone.journal.compact(15, lone.members)
    lone.receive(
        "n3", appended=Appended(term=1, sequence=latest_sequence(lone, "n3"), next_index=2, reset=True)
    )
    said = [kind for _ in range(5) for kind in kinds(lone.tick())]
    assert said.count(("n3", "need_snapshot")) == 1
    assert ("n3", "need_snapshot") in kinds(lone.tick(after_s=0.06))


def latest_sequence(lone: Lone, peer: str) -> int:
    return max(m.append.sequence for to, m in lone.said if to == peer and m.HasField("append"))


def test_a_follower_that_needs_no_snapshot_says_where_to_go_on() -> None:
    """Or it is offered one for ever: found by the simulator (seed 28)."""
    lone = Lone()
    lone.follow("n2", entries=9)
    lone.receive("n2", append=Append(term=1, prev_index=10, prev_term=1, commit_index=8, sequence=2))
    said = lone.receive("n2", need_snapshot=NeedSnapshot(term=1, first_index=5, sequence=3))
    answer = next(message.appended for _, message in said if message.HasField("appended"))
    assert (answer.reset, answer.next_index, answer.sequence) == (True, 9, 3)
    assert lone.consensus.take_snapshot_source() is None
    lone.receive("n2", need_snapshot=NeedSnapshot(term=1, first_index=9, sequence=4))
    assert lone.consensus.take_snapshot_source() == "n2"


def test_no_more_is_sent_to_a_silent_follower_than_its_window_holds() -> None:
    """The engine queues without end (t)."""
    lone = Lone(window_bytes_max=100_000)
    lone.lead()
    commit_all(lone)
    for _ in range(100):
        lone.consensus.append(entry_payload(bytes(10_000)))
        lone.tick()
    sent = sum(message.ByteSize() for to, message in lone.said if to == "n3")
    assert sent < 130_000
    lone.receive(
        "n3", appended=Appended(term=1, sequence=latest_sequence(lone, "n3"), next_index=4, success=True)
    )
    assert any(to == "n3" and kind == "append" for to, kind in kinds(lone.tick()))


def test_an_answer_does_not_take_back_what_was_sent_after_what_it_answers() -> None:
    """Or everything under way is sent again with each answer."""
    lone = serving()
    for _ in range(3):
        lone.consensus.append(entry_payload(b"x"))
        lone.tick()
    first = min(
        message.append.sequence
        for to, message in lone.said
        if to == "n2"
        and message.HasField("append")
        and message.append.prev_index == 2
        and message.append.entries
    )
    lone.receive("n2", appended=Appended(term=1, sequence=first, next_index=4, success=True))
    said = lone.tick(after_s=0.06)
    assert not any(len(message.append.entries) for to, message in said if to == "n2")
