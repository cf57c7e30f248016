from __future__ import annotations

from dataclasses import dataclass

import pytest

from tarry.replication.raft.guard.peer_clock import READINGS, PeerClock

HOUR_MS = 3_600_000


@dataclass
class Hands:
    """A clock whose hands are set by the test."""

    now_ms: int = 5_000_000
    wrong_ms: int = 0

    def monotonic_s(self) -> float:
        return self.now_ms / 1000

    def wall_ms(self) -> int:
        return self.now_ms + 1_700_000_000_000 + self.wrong_ms


def exchange(ours: Hands, peer: PeerClock, there_ms: int, back_ms: int, peer_wrong_ms: int = 0) -> None:
    """Let a heartbeat and its answer travel; the peer's clock differs from true time by peer_wrong_ms."""
    sent = ours.monotonic_s()
    ours.now_ms += there_ms
    read = Hands(ours.now_ms, peer_wrong_ms).wall_ms()
    ours.now_ms += back_ms
    peer.answer(ours, sent, read)


def difference(peer: PeerClock, ours: Hands) -> tuple[float, float]:
    """Return offset and error; the rounding of floats aside."""
    measured = peer.offset_ms(ours, ours.wall_ms())
    assert measured is not None
    return round(measured[0], 3), round(measured[1], 3)


def test_nothing_is_known_of_a_peer_that_said_nothing() -> None:
    assert PeerClock().offset_ms(Hands(), 0) is None


def test_a_slow_half_of_a_round_trip_is_within_the_error() -> None:
    for there_ms, back_ms in ((40, 0), (0, 40), (20, 20)):
        ours, peer = Hands(), PeerClock()
        exchange(ours, peer, there_ms, back_ms)
        offset_ms, error_ms = difference(peer, ours)
        assert abs(offset_ms) <= error_ms == 21


def test_the_quickest_of_the_last_readings_counts() -> None:
    ours, peer = Hands(), PeerClock()
    exchange(ours, peer, there_ms=1, back_ms=1, peer_wrong_ms=30)
    exchange(ours, peer, there_ms=0, back_ms=80, peer_wrong_ms=30)
    assert difference(peer, ours) == (30, 2)


@pytest.mark.parametrize("before_ms", [600_000, -600_000, 100])
def test_a_reading_that_a_later_one_contradicts_counts_no_more_however_quick_it_was(before_ms: int) -> None:
    ours, peer = Hands(), PeerClock()
    for _ in range(READINGS):
        exchange(ours, peer, there_ms=1, back_ms=1, peer_wrong_ms=before_ms)
    exchange(ours, peer, there_ms=10, back_ms=30, peer_wrong_ms=0)
    offset_ms, error_ms = difference(peer, ours)
    assert abs(offset_ms) <= error_ms == 21
    assert len(peer.readings) == 1


def test_a_jump_of_our_own_clock_leaves_the_peer_s_where_it_is() -> None:
    ours, peer = Hands(), PeerClock()
    exchange(ours, peer, there_ms=1, back_ms=1)
    ours.wrong_ms = HOUR_MS
    assert difference(peer, ours) == (-HOUR_MS, 2)


def test_a_jump_of_the_peer_s_clock_is_seen_after_a_few_readings() -> None:
    ours, peer = Hands(), PeerClock()
    exchange(ours, peer, there_ms=1, back_ms=1)
    for _ in range(READINGS):
        exchange(ours, peer, there_ms=5, back_ms=5, peer_wrong_ms=-HOUR_MS)
    assert difference(peer, ours) == (-HOUR_MS, 6)


def test_a_follower_knows_its_leader_s_clock_as_too_low_by_the_way() -> None:
    ours, peer = Hands(), PeerClock()
    read = Hands(ours.now_ms, 500).wall_ms()
    ours.now_ms += 7
    peer.hear(ours, read)
    assert difference(peer, ours) == (493, 0)
