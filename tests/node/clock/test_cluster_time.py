"""Cluster time with clocks that lie."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.node.clock.cluster_time import ClusterTime, Offsets
from tarry.replication.clock import SystemClock
from tarry.replication.raft.guard.peer_clock import PeerClock

DAY_MS = 86_400_000


class HandClock:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.monotonic = 0.0
        self.wall_offset = 1_000_000

    def monotonic_s(self) -> float:
        return self.monotonic / 1_000

    def wall_ms(self) -> float:
        return self.monotonic + self.wall_offset


class SetClock(HandClock):
    """A clock that is set a day ahead, or back, once it has been read so many times."""

    def __init__(self, reads: int, ahead_ms: int) -> None:
        super().__init__()
        self._reads, self._ahead_ms = reads, ahead_ms

    def wall_ms(self) -> float:
        self._reads -= 1
        return super().wall_ms() + (self._ahead_ms if self._reads < 0 else 0)


def shown(clocks: list[tuple[float, float]]) -> Offsets:
    """Return what peers show whose clocks are set together with this node's own."""
    return lambda _: clocks


def test_it_runs_with_the_monotonic_clock() -> None:
    clock = HandClock()
    time = ClusterTime(clock)
    clock.monotonic += 250
    assert time.now_ms() == 1_000_250


def test_it_says_how_long_it_is_until_then_to_the_fraction_of_a_ms() -> None:
    clock = HandClock()
    time = ClusterTime(clock)
    clock.monotonic += 249.75
    assert time.now_ms() == 1_000_249
    assert time.seconds_until(1_000_250) == pytest.approx(0.00025, abs=1e-9)
    assert time.seconds_until(1_000_249) == 0
    assert time.seconds_until(999_000) == 0


def test_the_clocks_are_followed_to_the_fraction_of_a_ms() -> None:
    clock = HandClock()
    time = ClusterTime(clock)
    clock.monotonic += 249.75
    for offsets in ([], [(-0.3, 1.0), (0.2, 1.0)]):
        time.update(shown(offsets))
        assert time.seconds_until(1_000_250) == pytest.approx(0.00025, abs=1e-9)
    assert any(SystemClock().wall_ms() % 1 for _ in range(100))


def test_a_delay_is_counted_from_no_earlier_than_now() -> None:
    clock = HandClock()
    time = ClusterTime(clock)
    assert (time.now_ms(), time.latest_ms()) == (1_000_000, 1_000_000)
    clock.monotonic += 249.25
    time.update(shown([]))
    assert (time.now_ms(), time.latest_ms()) == (1_000_249, 1_000_250)


def test_a_leader_whose_clock_is_wrong_counts_delays_from_the_latest_that_the_others_may_show() -> None:
    clock = HandClock()
    clock.wall_offset -= 900_000  # it is 1,000,000
    time = ClusterTime(clock)
    time.adopt(999_998)  # a heartbeat travels
    time.lead(shown([(899_998.6, 1.5), (899_999.4, 1.5)]))
    assert (time.now_ms(), time.latest_ms()) == (999_998, 1_000_001)


def test_a_leader_that_has_yet_to_catch_up_with_its_own_clock_counts_delays_from_that() -> None:
    time = ClusterTime(HandClock())
    for heard_ms in (999_994, 999_995):
        time.adopt(heard_ms)
    time.lead(shown([(0.2, 1.0), (-0.3, 1.0)]))
    assert (time.now_ms(), time.latest_ms()) == (999_996, 1_000_000)


@pytest.mark.parametrize("other_ms", [-600_000, 600_000])
def test_delays_are_as_asked_where_half_of_the_clocks_say_this_and_half_that(other_ms: int) -> None:
    time = ClusterTime(HandClock())
    time.update(shown([(other_ms, 1)]))
    assert time.latest_ms() == 1_000_000


def test_while_it_stands_still_it_is_long_until_the_next_ms() -> None:
    clock = HandClock()
    time = ClusterTime(clock)
    clock.monotonic += 1_000
    assert time.now_ms() == 1_001_000
    time.update(shown([(-100.0, 1.0), (-100.0, 1.0)]))
    assert time.seconds_until(1_001_000) == 0
    assert time.seconds_until(1_001_001) == pytest.approx(0.1, abs=1e-9)  # 99 back, which is sure


def test_the_own_clock_jumping_ahead_moves_nothing_while_two_peers_agree() -> None:
    clock = HandClock()
    time = ClusterTime(clock)
    clock.wall_offset += DAY_MS
    time.update(shown([(-DAY_MS - 15, 20), (-DAY_MS + 12, 20)]))
    assert time.now_ms() == 1_000_000
    assert time.own_offset_ms == DAY_MS


def test_the_own_clock_jumping_back_moves_nothing_while_two_peers_agree() -> None:
    clock = HandClock()
    time = ClusterTime(clock)
    clock.wall_offset -= 900_000
    time.update(shown([(900_000 + 15, 20), (900_000 - 12, 20)]))
    clock.monotonic += 250
    assert time.now_ms() == 1_000_250


def test_one_peer_a_day_ahead_moves_nothing() -> None:
    time = ClusterTime(HandClock())
    time.update(shown([(DAY_MS, 1), (0, 1)]))
    assert time.now_ms() == 1_000_000


def test_slow_round_trips_move_nothing() -> None:
    time = ClusterTime(HandClock())
    for _ in range(100):
        time.update(shown([(35, 40), (38, 40)]))
    assert time.now_ms() == 1_000_000


@pytest.mark.parametrize("wrong_ms", [-26, 26])
def test_a_clock_found_wrong_moves_nothing_once_slow_round_trips_cannot_tell_it_from_a_right_one(
    wrong_ms: int,
) -> None:
    clock = HandClock()
    time = ClusterTime(clock)
    clock.wall_offset += wrong_ms
    time.adopt(1_000_000)
    time.lead(shown([(-wrong_ms, 2), (-wrong_ms, 2)]))
    for _ in range(3):
        time.update(shown([(-wrong_ms + 9, 36), (-wrong_ms - 9, 36)]))
        assert (time.now_ms(), time.own_offset_ms) == (1_000_000, wrong_ms)


def test_a_clock_found_wrong_is_followed_again_once_it_has_been_set_right() -> None:
    clock = HandClock()
    time = ClusterTime(clock)
    clock.wall_offset += 600_000
    time.update(shown([(-600_000, 2), (-600_000, 2)]))
    clock.wall_offset -= 600_000
    clock.monotonic += 249.75
    time.update(shown([(1, 2), (-1, 2)]))
    assert time.seconds_until(1_000_250) == pytest.approx(0.00025, abs=1e-9)
    clock.wall_offset += 1
    time.update(shown([(1, 2), (-1, 2)]))
    assert time.seconds_until(1_000_251) == pytest.approx(0.00025, abs=1e-9)


def test_two_peers_that_are_surely_ahead_are_followed_as_far_as_they_are_sure() -> None:
    time = ClusterTime(HandClock())
    time.update(shown([(1_000, 20), (1_010, 20)]))
    assert time.now_ms() == 1_000_980


@pytest.mark.parametrize("other_ms", [-600_000, 600_000])
def test_of_two_clocks_that_differ_neither_moves_anything(other_ms: int) -> None:
    time = ClusterTime(HandClock())
    time.update(shown([(other_ms, 1)]))
    assert (time.now_ms(), time.own_offset_ms) == (1_000_000, 0)


@pytest.mark.parametrize("jump_ms", [-600_000, 600_000])
def test_the_own_clock_that_jumps_moves_nothing_though_one_peer_alone_is_in_reach(jump_ms: int) -> None:
    clock = HandClock()
    time = ClusterTime(clock)
    time.lead(shown([(2, 5)]))
    clock.wall_offset += jump_ms
    time.update(shown([(2 - jump_ms, 5)]))
    clock.monotonic += 250
    assert (time.now_ms(), time.own_offset_ms) == (1_000_250, jump_ms)


def test_a_node_that_begins_to_lead_goes_by_the_earlier_of_two_clocks_if_it_knows_no_more() -> None:
    ahead, behind = ClusterTime(HandClock()), ClusterTime(HandClock())
    ahead.lead(shown([(600_000, 1)]))
    behind.lead(shown([(-600_000, 1)]))
    assert (ahead.now_ms(), behind.now_ms()) == (1_000_000, 400_000 - 1)


@pytest.mark.parametrize("other_ms", [-600_000, 600_000])
def test_a_node_that_begins_to_lead_goes_by_the_leaders_time_before_it_where_two_clocks_differ(
    other_ms: int,
) -> None:
    time = ClusterTime(HandClock())
    time.adopt(1_000_000)
    time.lead(shown([(other_ms, 1)]))
    assert time.now_ms() == 1_000_000


def test_it_stands_still_rather_than_run_back() -> None:
    clock = HandClock()
    time = ClusterTime(clock)
    before = time.now_ms()
    time.update(shown([(-5_000, 0), (-5_000, 0)]))
    clock.monotonic += 1_000
    assert time.now_ms() == before
    clock.monotonic += 5_000
    assert time.now_ms() == before + 1_000


def test_a_node_that_begins_to_lead_forgets_what_its_own_clock_alone_said() -> None:
    time = ClusterTime(HandClock())
    assert time.now_ms() == 1_000_000
    time.lead(shown([(-600_000, 10), (-600_005, 10)]))
    assert 400_000 - 25 <= time.now_ms() <= 400_000


def test_a_node_that_begins_to_lead_with_the_right_clock_goes_by_it() -> None:
    time = ClusterTime(HandClock())
    time.adopt(990_000)
    for _ in range(3):
        time.lead(shown([(4, 10), (DAY_MS, 1)]))
    assert time.now_ms() == 1_000_000


def test_a_follower_takes_over_the_leaders_time_whichever_way_it_lies() -> None:
    time = ClusterTime(HandClock())
    assert time.now_ms() == 1_000_000
    time.adopt(1_060_000)
    assert time.now_ms() == 1_060_000
    time.adopt(400_000)
    assert time.now_ms() == 400_000


@pytest.mark.parametrize("ahead_ms", [-DAY_MS, DAY_MS])
@pytest.mark.parametrize("reads", range(12))
def test_a_clock_that_is_set_between_any_two_readings_moves_nothing(reads: int, ahead_ms: int) -> None:
    clock, peers = SetClock(reads, ahead_ms), [PeerClock(), PeerClock()]
    for peer in peers:
        peer.answer(clock, clock.monotonic_s(), 1_000_000)

    def offsets(wall_ms: float) -> list[tuple[float, float]]:
        return [offset for peer in peers if (offset := peer.offset_ms(clock, wall_ms)) is not None]

    time = ClusterTime(clock)
    time.lead(offsets)
    for _ in range(10):
        clock.monotonic += 50
        time.update(offsets)
        assert abs(time.now_ms() - 1_000_000 - clock.monotonic) <= 2


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1_000),
            st.integers(-(10**6), 10**6),
            st.integers(-(10**6), 10**6),
            st.integers(-(10**6), 10**6),
        )
    )
)
def test_it_never_runs_back_whatever_the_clocks_do(steps: list[tuple[int, int, int, int]]) -> None:
    clock = HandClock()
    time = ClusterTime(clock)
    last = time.now_ms()
    for passed, own, one, other in steps:
        clock.monotonic += passed
        clock.wall_offset = 1_000_000 + own
        time.update(shown([(one, 5), (other, 5)]))
        assert time.now_ms() >= last
        last = time.now_ms()
