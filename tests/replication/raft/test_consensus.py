"""One replica among peers that say what they should not, twice, late, or out of date."""

from __future__ import annotations

import pytest

from tarry.proto.tarry_peer_pb2 import (
    Append,
    Appended,
    Heartbeat,
    HeartbeatReply,
    LoggedEntry,
    MemberList,
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
from tarry.replication.journal.records import entry_payload
from tarry.replication.raft.elections import ConsensusViolated
from tarry.replication.raft.guard.terms import TERM_END, TERM_STEP_MAX
from tarry.replication.status import Role
from tests.replication.lone_consensus import Lone, answer_heartbeats, commit_all, kinds, serving, vote_request


def test_a_replica_asks_before_it_raises_its_term() -> None:
    lone = Lone()
    said = lone.tick(after_s=1.0)
    assert kinds(said) == [("n2", "pre_vote_request"), ("n3", "pre_vote_request")]
    assert (lone.consensus.state.term, lone.role()) == (0, Role.FOLLOWER)


def test_a_majority_of_pre_votes_lets_it_campaign_and_of_votes_lead() -> None:
    lone = Lone()
    lone.lead()
    assert lone.consensus.state.term == 1
    assert lone.consensus.state.leader == "n1"


def test_a_vote_given_twice_counts_once() -> None:
    """Or two leaders of one term are elected (i)."""
    lone = Lone(size=5)
    round_ = lone.tick(after_s=1.0)[0][1].pre_vote_request.round
    for peer in ("n2", "n3"):
        lone.receive(peer, pre_vote=PreVote(round=round_))
    assert lone.role() is Role.CANDIDATE
    for _ in range(3):
        lone.receive("n2", vote=Vote(term=1))
    lone.receive("stranger", vote=Vote(term=1))
    assert lone.role() is Role.CANDIDATE
    lone.receive("n3", vote=Vote(term=1))
    assert lone.role() is Role.LEADER


def test_a_vote_of_an_earlier_term_neither_counts_nor_lets_another_count_twice() -> None:
    lone = Lone(size=5)
    lone.tick(after_s=1.0)
    lone.consensus.elections.campaign(None)
    lone.consensus.elections.campaign(None)
    assert (lone.consensus.state.term, lone.role()) == (2, Role.CANDIDATE)
    for term in (2, 1, 2, 1, 2):
        lone.receive("n2", vote=Vote(term=term, state=b"of %d" % term))
    assert lone.role() is Role.CANDIDATE
    assert lone.consensus.elections.elected_by == [b"known", b"of 2"]


def test_a_grant_to_another_journal_of_the_node_is_for_no_round_of_this_one() -> None:
    """Or what answers a founder's lost journal lets its empty one campaign."""
    for incarnation in (7 << 40, (7 << 40) + 1_000_000):
        lone = Lone(incarnation=incarnation)
        asked = lone.tick(after_s=1.0)[0][1].pre_vote_request.round
        lone.receive("n2", pre_vote=PreVote(round=1))
        assert lone.role() is Role.FOLLOWER
        lone.receive("n2", pre_vote=PreVote(round=asked))
        assert lone.role() is Role.CANDIDATE


def test_who_elects_tells_what_it_knows() -> None:
    lone = Lone(size=5)
    lone.tick(after_s=1.0)
    lone.consensus.elections.campaign(None)
    for peer in ("n2", "n3"):
        lone.receive(peer, vote=Vote(term=1, state=peer.encode()))
    assert lone.role() is Role.LEADER
    assert lone.consensus.elections.elected_by == [b"known", b"n2", b"n3"]


def test_where_a_candidate_listens_is_heard_of_one_that_may_speak_as_a_node() -> None:
    lone = Lone()
    for peer in ("n3", "stranger"):
        lone.receive(
            peer, pre_vote_request=PreVoteRequest(term=1, last_term=1, last_index=9, address="new:1")
        )
    assert lone.membership.named() == {**lone.members, "n3": "new:1"}


def test_a_leader_with_a_lease_elects_nobody() -> None:
    lone = serving()
    assert lone.receive("n3", vote_request=vote_request(term=2)) == []
    assert lone.role() is Role.LEADER


def test_a_replica_that_hears_its_leader_neither_elects_another_nor_raises_its_term() -> None:
    lone = Lone()
    lone.follow("n2")
    assert lone.receive("n3", vote_request=vote_request(term=9)) == []
    assert (
        lone.receive("n3", pre_vote_request=PreVoteRequest(term=9, round=1, last_index=99, last_term=8)) == []
    )
    assert lone.consensus.state.term == 1


def test_a_replica_that_has_just_started_elects_nobody() -> None:
    """It may have told a leader that it would not (the lease rests on it)."""
    lone = Lone()
    assert lone.receive("n3", vote_request=vote_request(term=1)) == []
    lone.clock.now += (lone.settings.election_min_ms + lone.settings.patience_ms) / 1000 - 0.01
    assert lone.receive("n3", vote_request=vote_request(term=1)) == []
    lone.tick(after_s=0.07)
    assert ("n3", "vote") in kinds(lone.receive("n3", vote_request=vote_request(term=1)))


def test_a_vote_that_was_lost_is_given_again_and_to_nobody_else() -> None:
    lone = Lone()
    lone.clock.now += 0.6
    assert kinds(lone.receive("n3", vote_request=vote_request(term=5))) == [("n3", "vote")]
    assert kinds(lone.receive("n3", vote_request=vote_request(term=5))) == [("n3", "vote")]
    lone.clock.now += 0.6
    assert lone.receive("n2", vote_request=vote_request(term=5)) == []


def test_a_vote_for_a_journal_that_the_peer_has_lost_is_not_given_to_its_empty_one() -> None:
    """A founder of two may begin anew; what its lost journal asked for may arrive late."""
    lone = Lone(size=2)
    lone.follow("n2")
    lone.clock.now += 0.6
    assert kinds(lone.receive("n2", vote_request=vote_request(term=5))) == [("n2", "vote")]
    assert kinds(lone.receive("n2", vote_request=VoteRequest(term=5))) == []


def test_a_vote_outlives_a_restart() -> None:
    lone = Lone()
    lone.clock.now += 0.6
    lone.receive("n3", vote_request=vote_request(term=5))
    lone.start()
    lone.clock.now += 0.6
    assert lone.receive("n2", vote_request=vote_request(term=5)) == []
    assert lone.consensus.state.term == 5


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
    assert (lone.role(), lone.consensus.state.term, lone.consensus.state.leader) == (Role.FOLLOWER, 7, None)


@pytest.mark.parametrize("far", [TERM_STEP_MAX + 5, TERM_END - 1, TERM_END, 2**64 - 1])
@pytest.mark.parametrize("leads", [True, False])
def test_a_message_of_a_term_that_no_election_leads_to_counts_for_nothing(far: int, leads: bool) -> None:
    """Or it goes round the cluster, and is on every disk for good."""
    entry = LoggedEntry(term=far, payload=entry_payload(b"x"))
    bodies: list[dict[str, object]] = [
        {"term_notice": TermNotice(term=far)},
        {"append": Append(term=far, prev_index=1)},
        {"append": Append(term=4, prev_index=1, prev_term=far)},
        {"append": Append(term=4, prev_index=1, entries=[entry])},
        {"appended": Appended(term=far, sequence=1, next_index=3, success=True)},
        {"need_snapshot": NeedSnapshot(term=far, first_index=9)},
        {"vote_request": vote_request(term=far)},
        {"vote_request": VoteRequest(term=5, last_index=9, last_term=far)},
        {"vote": Vote(term=far)},
        {"pre_vote_request": PreVoteRequest(term=far, round=1)},
        {"pre_vote_request": PreVoteRequest(term=5, round=1, last_term=far)},
        {"timeout_now": TimeoutNow(term=far)},
        {"heartbeat": Heartbeat(term=far)},
        {"heartbeat_reply": HeartbeatReply(term=far)},
    ]
    lone = Lone()
    lone.receive("n2", term_notice=TermNotice(term=3))
    if leads:
        lone.lead()
    else:
        lone.follow("n2", term=4)
    lone.clock.now += 0.7
    before = (lone.role(), lone.consensus.state.term, lone.journal.last_term)
    for body in bodies:
        assert not lone.consensus.receive("n2", PeerMessage(**body))  # type: ignore[arg-type]
        assert lone.settle() == []
    assert (lone.role(), lone.consensus.state.term, lone.journal.last_term) == before
    assert before[1:] == (4, 4)


def test_a_term_is_believed_up_to_the_step_that_elections_may_take_and_any_by_who_has_none() -> None:
    lone = Lone()
    lone.receive("n2", term_notice=TermNotice(term=TERM_END - 1 - TERM_STEP_MAX))
    lone.receive("n2", term_notice=TermNotice(term=TERM_END - 1))
    assert lone.consensus.state.term == TERM_END - 1
    lone.tick(after_s=1.0)
    assert lone.said[-1][1].pre_vote_request.term == TERM_END


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
    assert lone.consensus.state.match_index("n2") == 0


def test_an_answer_from_a_stranger_or_beyond_the_log_counts_for_nothing() -> None:
    lone = Lone()
    lone.lead()
    lone.receive("n9", appended=Appended(term=1, sequence=1, next_index=3, success=True))
    lone.receive("n2", appended=Appended(term=1, sequence=1, next_index=99, success=True))
    lone.tick()
    assert (lone.consensus.state.match_index("n2"), lone.consensus.state.commit_index) == (0, 1)


def test_a_late_answer_of_a_removed_member_does_no_harm() -> None:
    """The engine raises KeyError (n)."""
    lone = Lone()
    lone.lead()
    commit_all(lone)
    assert lone.consensus.change_membership(MembershipChange(remove=True, node="n3")) is not None
    lone.receive("n3", appended=Appended(term=1, sequence=1, next_index=3, success=True))
    lone.tick()
    assert lone.consensus.state.voters == {"n2"}


def test_a_second_change_of_members_waits_for_the_first() -> None:
    """Or an isolated leader removes its peers one by one and is its own majority (k)."""
    lone = Lone()
    lone.lead()
    assert lone.consensus.change_membership(MembershipChange(remove=True, node="n3")) is None
    commit_all(lone)
    assert lone.consensus.change_membership(MembershipChange(remove=True, node="n3")) is not None
    assert lone.consensus.change_membership(MembershipChange(remove=True, node="n2")) is None
    assert lone.consensus.state.voters == {"n2"}


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
    assert lone.consensus.state.voters == {"n2"}
    entries = [LoggedEntry(term=2, payload=entry_payload(b""))]
    lone.receive("n3", append=Append(term=2, prev_index=1, prev_term=0, entries=entries, sequence=1))
    assert lone.consensus.state.voters == {"n2", "n3"}


def test_a_change_of_members_counts_from_the_log_also_after_a_restart() -> None:
    lone = Lone()
    removal = b"\2" + MembershipChange(remove=True, node="n3").SerializeToString()
    entries = [LoggedEntry(term=1, payload=removal)]
    lone.receive("n2", append=Append(term=1, prev_index=1, prev_term=0, entries=entries, sequence=1))
    lone.start()
    assert lone.consensus.state.voters == {"n2"}


def test_a_follower_that_lacks_what_was_compacted_is_told_once_per_heartbeat() -> None:
    """The engine would send thousands of messages in one tick (s)."""
    lone = serving()
    for _ in range(20):
        lone.consensus.append(entry_payload(b"x"))
    lone.tick()
    commit_all(lone)
    lone.journal.compact(15, MemberList(addresses=lone.members))
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
    assert lone.consensus.log_replication.take_snapshot_source() is None
    lone.receive("n2", need_snapshot=NeedSnapshot(term=1, first_index=9, sequence=4))
    assert lone.consensus.log_replication.take_snapshot_source() == "n2"


def answer(lone: Lone, peer: str) -> None:
    """The peer has all there is, and answers each heartbeat."""
    said = Appended(
        term=lone.consensus.state.term,
        sequence=latest_sequence(lone, peer),
        next_index=lone.journal.last_index + 1,
        success=True,
    )
    lone.receive(peer, appended=said)
    lone.tick()


def answer_all(lone: Lone) -> None:
    for peer in lone.peers:
        answer(lone, peer)


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


def commits_told(said: list[tuple[str, PeerMessage]]) -> dict[str, int]:
    """The commit index of the latest append to each peer."""
    return {to: message.append.commit_index for to, message in said if message.HasField("append")}


def test_the_last_commit_of_a_burst_is_told_in_time_though_all_have_answered_by_then_and_once() -> None:
    lone = serving()
    answer_all(lone)
    last = lone.consensus.append(entry_payload(b"x"))
    assert last is not None
    lone.tick()
    for peer in lone.peers:  # the first answer commits, after the second there is nothing under way
        answer(lone, peer)
        assert lone.consensus.state.commit_index == last
    notice_s = lone.settings.commit_notice_ms / 1000
    assert commits_told(lone.tick(after_s=notice_s + 0.001)) == {"n2": last, "n3": last}
    answer_all(lone)
    said = []
    for _ in range(9):
        said += lone.tick(after_s=0.1)
        answer_heartbeats(lone, *lone.peers)
    assert commits_told(said) == {}


def test_what_is_proposed_is_logged_at_once_however_long_the_process_pauses() -> None:
    lone = Lone()
    lone.lead()
    commit_all(lone)

    def pausing_s() -> float:  # at each look at the clock, for longer than an append period
        lone.clock.now += 2 * lone.settings.heartbeat_ms / 1000
        return lone.clock.now

    lone.clock.monotonic_s = pausing_s  # type: ignore[method-assign]
    last = lone.journal.last_index
    assert lone.consensus.change_membership(MembershipChange(node="n4", address="n4:1")) == last + 1
    assert lone.consensus.append(entry_payload(b"")) == last + 2
    assert lone.journal.last_index == last + 2
