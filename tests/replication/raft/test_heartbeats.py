"""When a leader may serve, and how it transfers leadership."""

from __future__ import annotations

from itertools import pairwise

from tarry.proto.tarry_peer_pb2 import Append, Heartbeat, HeartbeatReply, PeerMessage, TimeoutNow
from tarry.replication.journal.records import entry_payload
from tarry.replication.raft.guard.transfer import Phase
from tarry.replication.status import SETTINGS_BYTES_MAX, Hello, Role, digest_of
from tests.replication.lone_consensus import Lone, answer_heartbeats, commit_all, kinds, serving, vote_request


def test_a_leader_serves_once_a_majority_has_answered_and_its_own_entry_is_applied() -> None:
    lone = Lone()
    lone.lead()
    assert not lone.consensus.heartbeats.may_serve(lone.clock.now)
    answer_heartbeats(lone, "n2")
    assert not lone.consensus.heartbeats.may_serve(lone.clock.now)
    commit_all(lone)
    assert lone.consensus.heartbeats.may_serve(lone.clock.now)
    assert lone.consensus.heartbeats.may_serve(lone.clock.now + 0.28)
    assert not lone.consensus.heartbeats.may_serve(lone.clock.now + 0.29)


def test_a_leader_confirms_no_read_before_its_own_entry_is_committed() -> None:
    """It may not know yet what an earlier leader committed."""
    lone = Lone()
    since = lone.clock.now
    lone.lead()
    answer_heartbeats(lone, "n2", "n3")
    assert lone.consensus.heartbeats.confirmed_s >= since
    assert not lone.consensus.heartbeats.confirmed_since(since)
    assert not lone.consensus.heartbeats.knows_commits_by_lease(lone.clock.now)
    commit_all(lone)
    assert lone.consensus.heartbeats.confirmed_since(since)
    assert lone.consensus.heartbeats.knows_commits_by_lease(lone.clock.now)


def test_a_lease_lasts_from_the_sending_however_late_the_answer_comes() -> None:
    lone = Lone()
    lone.lead()
    commit_all(lone)
    sent = lone.clock.now
    lone.clock.now += 0.2
    answer_heartbeats(lone, "n2")
    assert lone.consensus.heartbeats.may_serve(sent + 0.28)
    assert not lone.consensus.heartbeats.may_serve(sent + 0.29)


def test_a_leader_without_answers_steps_down_before_another_can_be_elected() -> None:
    lone = Lone()
    lone.lead()
    answer_heartbeats(lone, "n2", "n3")
    lone.tick(after_s=0.26)
    assert lone.role() is Role.FOLLOWER


def quiet() -> Lone:
    """It leads, and nothing has changed for long; its peers have just answered."""
    lone = serving()
    for _ in range(30):
        lone.tick(after_s=0.05)
        commit_all(lone)
        answer_heartbeats(lone, "n2", "n3")
    for _ in range(40):
        if heartbeats(lone.tick(after_s=0.01)):
            break
    answer_heartbeats(lone, "n2", "n3")
    return lone


def heartbeats(said: list[tuple[str, PeerMessage]]) -> list[Heartbeat]:
    return [message.heartbeat for peer, message in said if peer == "n2" and message.HasField("heartbeat")]


def test_while_nothing_changes_heartbeats_are_rarer_and_ask_for_patience() -> None:
    lone = quiet()
    assert [beat.patience_ms for beat in heartbeats(lone.said)[-1:]] == [200]
    assert heartbeats(lone.tick(after_s=0.24)) == []
    assert len(heartbeats(lone.tick(after_s=0.01))) == 1


def test_a_change_brings_the_usual_pace_back() -> None:
    lone = quiet()
    lone.tick(after_s=0.02)
    assert lone.consensus.stir()
    assert not lone.consensus.stir()
    assert heartbeats(lone.tick(after_s=0.02)) == []
    assert [beat.patience_ms for beat in heartbeats(lone.tick(after_s=0.01))] == [0]
    lone = quiet()
    lone.consensus.append(entry_payload(b"something"))
    assert len(heartbeats(lone.tick(after_s=0.05))) == 1


def test_a_quiet_leaders_lease_lasts_as_long_as_the_others_have_promised() -> None:
    lone = quiet()
    assert lone.consensus.heartbeats.may_serve(lone.clock.now + 0.47)
    assert not lone.consensus.heartbeats.may_serve(lone.clock.now + 0.48)


def test_a_quiet_leader_steps_down_later_whatever_is_answered_to_an_append() -> None:
    lone = quiet()
    commit_all(lone)
    lone.tick(after_s=0.44)
    assert lone.role() is Role.LEADER
    lone.tick(after_s=0.02)
    assert lone.role() is Role.FOLLOWER


def test_a_follower_is_as_patient_as_it_is_asked_to_be_but_for_no_longer_than_is_agreed() -> None:
    lone = Lone()
    lone.follow("n2")
    [(_, said)] = lone.receive("n2", heartbeat=Heartbeat(term=1, sent=1.0, patience_ms=9_000))
    assert said.heartbeat_reply.patience_ms == 200
    lone.clock.now += 0.49
    assert lone.receive("n3", vote_request=vote_request(term=2)) == []
    lone.tick()
    assert lone.role() is Role.FOLLOWER
    lone.clock.now += 0.011
    assert kinds(lone.receive("n3", vote_request=vote_request(term=2))) == [("n3", "vote")]


def begin_transfer(lone: Lone) -> TimeoutNow:
    lone.consensus.transfer.begin("n2", deadline=lone.clock.now + 1, now=lone.clock.now)
    lone.tick()
    answer_heartbeats(lone, "n2", "n3")
    said = lone.tick()
    return next(message.timeout_now for _, message in said if message.HasField("timeout_now"))


def test_an_answer_tells_no_flush_of_entries_that_this_leader_has_not_compared() -> None:
    lone = Lone()
    lone.follow("n2", term=1, entries=3)
    assert lone.journal.flushed_index == 4
    assert _flushed(lone, "n2", 1) == 4
    assert _flushed(lone, "n3", 2) == 0
    lone.receive("n3", append=Append(term=2, prev_index=2, prev_term=1, sequence=1))
    assert _flushed(lone, "n3", 2) == 2


def _flushed(lone: Lone, leader: str, term: int) -> int:
    (said,) = lone.receive(leader, heartbeat=Heartbeat(term=term, sent=1.0))
    return said[1].heartbeat_reply.flushed_index


def test_who_has_stepped_down_waits_before_it_asks_to_be_elected() -> None:
    lone = serving()
    lone.tick(after_s=0.26)
    assert lone.role() is Role.FOLLOWER
    before = len(lone.said)
    lone.tick(after_s=0.2)  # all others' timeouts are longer than that, and so is its own
    assert lone.said[before:] == []


def test_a_leader_that_transfers_leadership_serves_no_more_and_lets_its_successor_be_elected() -> None:
    lone = serving()
    request = begin_transfer(lone)
    answer_heartbeats(lone, "n2", "n3")
    assert not lone.consensus.heartbeats.may_serve(lone.clock.now)
    wish = vote_request(term=2, transfer=True, transfer_number=request.transfer_number)
    assert kinds(lone.receive("n2", vote_request=wish)) == [("n2", "vote")]
    assert lone.role() is Role.FOLLOWER


def test_a_leader_serves_and_proposes_in_no_phase_of_a_transfer_however_fresh_its_lease() -> None:
    lone = serving()
    lone.consensus.transfer.begin("n2", deadline=lone.clock.now + 1, now=lone.clock.now)
    phases = {lone.consensus.transfer.phase}
    while lone.consensus.transfer.phase is not Phase.CAMPAIGNING:
        lone.tick(after_s=0.01)
        answer_heartbeats(lone, "n2", "n3")
        phases.add(lone.consensus.transfer.phase)
        assert not lone.consensus.heartbeats.may_serve(lone.clock.now)
        assert not lone.consensus.heartbeats.may_propose(lone.clock.now)
    assert phases == {Phase.DRAINING, Phase.TELLING, Phase.CAMPAIGNING}


def test_a_transfer_goes_on_once_heartbeats_have_said_all_of_the_dispatch_state() -> None:
    lone = serving()
    lone.told_all = False
    lone.consensus.transfer.begin("n2", deadline=lone.clock.now + 1, now=lone.clock.now)
    for _ in range(3):
        lone.tick()
        answer_heartbeats(lone, "n2", "n3")
        assert lone.consensus.transfer.phase is Phase.TELLING
        lone.clock.now += 0.001
    lone.told_all = True
    lone.tick()
    assert lone.consensus.transfer.phase is Phase.TELLING
    answer_heartbeats(lone, "n2", "n3")
    assert "timeout_now" in [kind for _, kind in kinds(lone.tick())]


def test_a_transfer_that_was_given_up_cannot_come_true_later() -> None:
    lone = serving()
    request = begin_transfer(lone)
    lone.tick(after_s=0.2)
    commit_all(lone)
    answer_heartbeats(lone, "n2", "n3")
    lone.consensus.transfer.deadline = lone.clock.now
    lone.tick()
    assert not lone.consensus.heartbeats.may_serve(lone.clock.now)
    answer_heartbeats(lone, "n2", "n3")
    assert lone.consensus.heartbeats.may_serve(lone.clock.now)
    wish = vote_request(term=2, transfer=True, transfer_number=request.transfer_number)
    assert lone.receive("n2", vote_request=wish) == []
    assert lone.role() is Role.LEADER


def test_a_transfer_to_a_node_that_has_died_is_given_up_long_before_its_deadline() -> None:
    lone = serving()
    lone.consensus.transfer.begin("n2", deadline=lone.clock.now + 60, now=lone.clock.now)
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
    assert lone.consensus.heartbeats.may_propose(lone.clock.now)


def test_a_follower_that_has_heard_that_a_transfer_is_over_takes_no_part_in_it() -> None:
    lone = Lone()
    lone.follow("n2")
    lone.receive("n2", heartbeat=Heartbeat(term=1, sent=1.0, transfer_number=2))
    lone.receive("n2", timeout_now=TimeoutNow(term=1, transfer_number=1))
    assert lone.role() is Role.FOLLOWER
    assert lone.receive("n3", vote_request=vote_request(term=2, transfer=True, transfer_number=1)) == []
    lone.receive("n2", timeout_now=TimeoutNow(term=1, transfer_number=3))
    assert lone.role() is Role.CANDIDATE


def test_a_follower_that_has_restarted_takes_part_in_no_transfer_before_it_hears_the_leaders_number() -> None:
    """It may have heard before that the transfer is over; an append says nothing of that."""
    lone = Lone()
    lone.follow("n2")
    lone.receive("n2", heartbeat=Heartbeat(term=1, sent=1.0, transfer_number=2))
    lone.start()
    wish = vote_request(term=2, transfer=True, transfer_number=1)
    assert lone.receive("n3", vote_request=wish) == []
    lone.follow("n2", entries=2)
    assert lone.receive("n3", vote_request=wish) == []
    lone.receive("n2", heartbeat=Heartbeat(term=1, sent=1.0, transfer_number=3))
    assert lone.receive("n3", vote_request=wish) == []
    wish.transfer_number = 3
    assert kinds(lone.receive("n3", vote_request=wish)) == [("n3", "vote")]


def test_only_the_leader_can_ask_for_a_transfer() -> None:
    lone = Lone()
    lone.follow("n2")
    lone.receive("n3", timeout_now=TimeoutNow(term=1, transfer_number=1))
    assert lone.role() is Role.FOLLOWER


def test_a_leader_that_led_before_cannot_ask_for_a_transfer_of_that_time() -> None:
    lone = Lone()
    lone.follow("n2", term=2)
    lone.receive("n2", heartbeat=Heartbeat(term=2, sent=1.0))
    lone.receive("n2", timeout_now=TimeoutNow(term=1, transfer_number=1))
    assert lone.role() is Role.FOLLOWER
    lone.receive("n2", timeout_now=TimeoutNow(term=2, transfer_number=1))
    assert lone.role() is Role.CANDIDATE


OWN, OTHER = b"own settings", b"the settings of another"


def told() -> Lone:
    """It leads, and has settings to tell."""
    lone = Lone()
    lone.hello = Hello(2, "9", OWN, digest_of(OWN))
    lone.start()
    lone.lead()
    commit_all(lone)
    return lone


def answer(lone: Lone, digest: int, settings: bytes = b"", peer: str = "n2") -> Hello | None:
    """Let a peer answer the latest heartbeat so; return what is known of it then."""
    beat = heartbeats(lone.said)[-1]
    reply = HeartbeatReply(
        term=lone.consensus.state.term, sent=beat.sent, settings_digest=digest, settings=settings
    )
    lone.receive(peer, heartbeat_reply=reply)
    return lone.consensus.progress[peer].hello


def asked(lone: Lone, after_s: float) -> bool:
    lone.consensus.heartbeats.beat()
    return heartbeats(lone.tick(after_s=after_s))[-1].asks_settings


def test_a_leader_asks_for_settings_only_where_their_digest_is_another_and_once_they_are_told_no_more() -> (
    None
):
    lone = told()
    assert not asked(lone, 0.05)  # nobody has said anything
    answer(lone, 0)
    answer(lone, digest_of(OWN), peer="n3")
    assert not asked(lone, 0.05)  # an earlier version, and one with the same
    assert answer(lone, digest_of(OTHER)) == Hello(1, "", b"", digest_of(OTHER))
    assert asked(lone, 0.05)
    assert not asked(lone, 0.05)
    known = answer(lone, digest_of(OTHER), OTHER)
    assert known == Hello(1, "", OTHER, digest_of(OTHER))
    assert not asked(lone, 0.2)
    assert answer(lone, digest_of(OTHER)) == known
    lone.clock.now += 1.0
    answer(lone, digest_of(OTHER))
    assert not asked(lone, 0.05)
    assert answer(lone, 77) == Hello(1, "", b"", 77)  # its file has changed: it was started again


def test_settings_that_are_no_match_of_their_digest_or_too_long_are_not_kept_nor_asked_for_often() -> None:
    lone = told()
    huge = b"x" * (SETTINGS_BYTES_MAX + 1)
    asked_at = []
    for step in range(50):
        answer(lone, *((digest_of(huge), huge) if step % 2 else (5, OTHER)))
        hello = lone.consensus.progress["n2"].hello
        assert hello is not None
        assert hello.settings == b""
        answer_heartbeats(lone, "n3")
        if asked(lone, 0.05):
            asked_at.append(lone.clock.now)
    assert 2 <= len(asked_at) <= 4
    assert all(later - earlier >= 1.0 for earlier, later in pairwise(asked_at))


def test_a_follower_tells_its_settings_where_it_is_asked_and_always_their_digest() -> None:
    lone = Lone()
    lone.hello = Hello(2, "9", OWN, digest_of(OWN))
    lone.start()
    lone.follow("n2")
    for asks, told_settings in ((False, b""), (True, OWN)):
        beat = Heartbeat(term=1, sent=1.0, asks_settings=asks)
        [(_, said)] = lone.receive("n2", heartbeat=beat)
        reply = said.heartbeat_reply
        assert (reply.settings, reply.settings_digest) == (told_settings, digest_of(OWN))
