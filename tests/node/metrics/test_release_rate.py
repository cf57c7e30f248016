"""The rate of a backlog is measured, and what comes in time says nothing about it."""

from __future__ import annotations

import pytest

from tarry.node.metrics.release_rate import BACKLOG_MS, WINDOW_MS, WINDOW_MS_MAX, WINDOWS, ReleaseRate

NOW_MS = 1_800_000_000_000


def backlog(rate: ReleaseRate, now_ms: int, released: int) -> None:
    rate.note(now_ms, released, now_ms - BACKLOG_MS)


def test_what_is_released_while_messages_are_overdue_is_the_rate() -> None:
    rate = ReleaseRate()
    for beat in range(20):
        backlog(rate, NOW_MS + 50 * beat, 7_000 + 1_000 * beat)
    assert rate.per_s == pytest.approx(20_000)


def test_without_a_backlog_nothing_is_known() -> None:
    rate = ReleaseRate()
    for beat in range(20):
        now_ms = NOW_MS + 50 * beat
        rate.note(now_ms, 1_000 * beat, now_ms - BACKLOG_MS + 1 if beat % 2 else None)
    assert rate.per_s is None


def test_the_rest_of_a_time_in_which_the_backlog_ends_does_not_count() -> None:
    rate = ReleaseRate()
    backlog(rate, NOW_MS, 0)
    rate.note(NOW_MS + WINDOW_MS, 10, None)
    backlog(rate, NOW_MS + 2 * WINDOW_MS, 20)
    assert rate.per_s is None
    backlog(rate, NOW_MS + 3 * WINDOW_MS, 20 + WINDOW_MS)
    assert rate.per_s == pytest.approx(1_000)


@pytest.mark.parametrize(
    ("passed_ms", "released"), [(WINDOW_MS_MAX + 1, 100), (WINDOW_MS, 0), (WINDOW_MS, -5), (-1, 100)]
)
def test_a_jump_of_the_clock_a_standstill_and_another_state_do_not_count(
    passed_ms: int, released: int
) -> None:
    rate = ReleaseRate()
    backlog(rate, NOW_MS, 50)
    backlog(rate, NOW_MS + passed_ms, 50 + released)
    assert rate.per_s is None
    backlog(rate, NOW_MS + passed_ms + WINDOW_MS, 50 + released + WINDOW_MS)
    assert rate.per_s == pytest.approx(1_000)


def test_what_is_long_past_is_forgotten() -> None:
    rate, released = ReleaseRate(), 0
    for beat in range(2 * WINDOWS + 1):
        backlog(rate, NOW_MS + WINDOW_MS * beat, released)
        released += WINDOW_MS * (1 if beat < WINDOWS else 3)
    assert rate.per_s == pytest.approx(3_000)
