"""Mutants of cluster time: which clocks count, and that it does not run back."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CLUSTER_TIME = "tests/node/clock/test_cluster_time.py"

MUTANTS = (
    Mutant(
        "time_runs_back_under_one_leader",
        "messages come early",
        "        self._last_ms = max(self._last_ms, now)\n        return self._last_ms",
        "        self._last_ms = now\n        return self._last_ms",
        (f"{CLUSTER_TIME}::test_it_stands_still_rather_than_run_back",),
    ),
    Mutant(
        "one_wrong_clock_moves_time",
        "a leader with a wrong clock delivers early",
        "return 2 * same > 1 + len(clocks)",
        "return True",
        (
            f"{CLUSTER_TIME}::test_a_leader_whose_clock_is_wrong_counts_delays_from_the_latest_that_the_others_may_show",
        ),
    ),
    Mutant(
        "a_delay_counts_from_the_earliest",
        "a delay is shorter than asked",
        "        return max(self.now_ms(), math.ceil(latest))",
        "        return self.now_ms()",
        (f"{CLUSTER_TIME}::test_a_delay_is_counted_from_no_earlier_than_now",),
    ),
    Mutant(
        "a_first_leader_goes_by_the_later_clock",
        "messages come early",
        "least = median_low([0.0, *(offset - error for offset, error in clocks)])",
        "least = max([0.0, *(offset - error for offset, error in clocks)])",
        (
            f"{CLUSTER_TIME}::test_a_node_that_begins_to_lead_goes_by_the_earlier_of_two_clocks_if_it_knows_no_more",
        ),
    ),
    Mutant(
        "a_clock_found_wrong_is_followed_once_the_network_is_slow",
        "messages come early",
        "not _agrees(clocks) or (self._own_is_wrong and abs(now) > STEP_MS)",
        "not _agrees(clocks)",
        (
            f"{CLUSTER_TIME}::test_a_clock_found_wrong_moves_nothing_once_slow_round_trips_cannot_tell_it_from_a_right_one[26]",
        ),
    ),
    Mutant(
        "the_own_clock_is_read_twice_for_a_look",
        "a clock that is set between both readings is followed: a day of messages comes early",
        "        self._keep_to(offsets_ms(wall_ms), wall_ms)",
        "        self._keep_to(offsets_ms(wall_ms), self._clock.wall_ms())",
        (f"{CLUSTER_TIME}::test_a_clock_that_is_set_between_any_two_readings_moves_nothing",),
    ),
)
