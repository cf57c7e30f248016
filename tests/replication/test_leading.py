"""When a leader may serve, and how it hands over."""

from __future__ import annotations

from tarry.proto.tarry_peer_pb2 import (
    Heartbeat,
    TimeoutNow,
)
from tarry.replication.status import Role
from tests.replication.lone_consensus import Lone, answer_heartbeats, commit_all, kinds, serving, vote_request


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


def begin_transfer(lone: Lone) -> TimeoutNow:
    lone.consensus.begin_transfer("n2", deadline=lone.clock.now + 1)
    lone.tick()
    answer_heartbeats(lone, "n2", "n3")
    said = lone.tick()
    return next(message.timeout_now for _, message in said if message.HasField("timeout_now"))


def test_who_has_stepped_down_waits_before_it_asks_to_be_elected() -> None:
    lone = serving()
    lone.tick(after_s=0.26)
    assert lone.role() is Role.FOLLOWER
    before = len(lone.said)
    lone.tick(after_s=0.2)  # all others' timeouts are longer than that, and so is its own
    assert lone.said[before:] == []


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


def test_a_transfer_to_a_node_that_has_died_is_given_up_long_before_its_deadline() -> None:
    lone = serving()
    lone.consensus.begin_transfer("n2", deadline=lone.clock.now + 60)
    silence = lone.settings.transfer_silence_ms / 1000
    until = lone.clock.now + silence
    while lone.clock.now < until - 0.1:
        lone.tick(after_s=0.05)
        answer_heartbeats(lone, "n3")
        assert lone.consensus.transfer.running
    for _ in range(3):
        lone.tick(after_s=0.05)
        answer_heartbeats(lone, "n3")
    assert not lone.consensus.transfer.running
    assert lone.consensus.may_propose(lone.clock.now)


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
