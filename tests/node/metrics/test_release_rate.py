"""The rate of full releases is measured, and what comes in time says nothing about it."""

from __future__ import annotations

import pytest

from tarry.node.leader.dispatcher import PER_S_GUESSED
from tarry.node.metrics.release_rate import DEFAULT_PER_S, WINDOW_MS, WINDOW_MS_MAX, WINDOWS, ReleaseRate

NOW_MS = 1_800_000_000_000


def test_what_is_released_while_releases_are_full_is_the_rate() -> None:
    rate = ReleaseRate()
    for beat in range(20):
        rate.note(NOW_MS + 50 * beat, 7_000 + 1_000 * beat, full=True)
    assert rate.per_s == pytest.approx(20_000)


def test_what_all_goes_with_one_release_says_nothing() -> None:
    rate = ReleaseRate()
    for beat in range(20):
        rate.note(NOW_MS + 50 * beat, 1_000 * beat, full=beat % 2 == 0)
    assert rate.per_s is None


def test_the_rest_of_a_time_in_which_a_backlog_ends_does_not_count() -> None:
    rate = ReleaseRate()
    rate.note(NOW_MS, 0, full=True)
    rate.note(NOW_MS + WINDOW_MS, 10, full=False)
    rate.note(NOW_MS + 2 * WINDOW_MS, 20, full=True)
    assert rate.per_s is None
    rate.note(NOW_MS + 3 * WINDOW_MS, 20 + WINDOW_MS, full=True)
    assert rate.per_s == pytest.approx(1_000)


@pytest.mark.parametrize(
    ("passed_ms", "released"), [(WINDOW_MS_MAX + 1, 100), (WINDOW_MS, 0), (WINDOW_MS, -5), (-1, 100)]
)
def test_a_jump_of_the_clock_a_standstill_and_another_state_do_not_count(
    passed_ms: int, released: int
) -> None:
    rate = ReleaseRate()
    rate.note(NOW_MS, 50, full=True)
    rate.note(NOW_MS + passed_ms, 50 + released, full=True)
    assert rate.per_s is None
    rate.note(NOW_MS + passed_ms + WINDOW_MS, 50 + released + WINDOW_MS, full=True)
    assert rate.per_s == pytest.approx(1_000)


def test_what_is_long_past_is_forgotten() -> None:
    rate, released = ReleaseRate(), 0
    for beat in range(2 * WINDOWS + 1):
        rate.note(NOW_MS + WINDOW_MS * beat, released, full=True)
        released += WINDOW_MS * (1 if beat < WINDOWS else 3)
    assert rate.per_s == pytest.approx(3_000)


def test_until_then_the_same_is_assumed_as_by_the_dispatcher() -> None:
    assert DEFAULT_PER_S == PER_S_GUESSED
