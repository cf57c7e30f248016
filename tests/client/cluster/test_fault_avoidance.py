"""Avoidance: failed nodes come last for a while."""

from __future__ import annotations

import pytest

from tarry.client.cluster.fault_avoidance import AVOID_MS_MAX, AVOID_MS_MIN, Avoidance


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000.0

    def __call__(self) -> float:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_failed_node_comes_last_until_its_time_is_over(clock: Clock) -> None:
    avoidance = Avoidance(clock)
    avoidance.failed("a")
    assert avoidance.order(["a", "b", "c"]) == ["b", "c", "a"]
    clock.ms += AVOID_MS_MIN - 1
    assert not avoidance.available("a")
    clock.ms += 1
    assert avoidance.available("a")
    assert avoidance.order(["a", "b", "c"]) == ["a", "b", "c"]


def test_a_node_that_fails_again_when_its_time_is_over_is_avoided_twice_as_long(clock: Clock) -> None:
    avoidance = Avoidance(clock)
    expected_ms = AVOID_MS_MIN
    for _ in range(8):
        avoidance.failed("a")
        clock.ms += expected_ms - 1
        assert not avoidance.available("a")
        clock.ms += 1
        assert avoidance.available("a")
        expected_ms = min(2 * expected_ms, AVOID_MS_MAX)


def test_failures_of_one_search_count_once(clock: Clock) -> None:
    avoidance = Avoidance(clock)
    for _ in range(20):
        avoidance.failed("a")
        clock.ms += 50
    clock.ms += AVOID_MS_MIN - 50
    assert avoidance.available("a")


def test_an_answer_clears_a_failure_and_what_it_grew_to(clock: Clock) -> None:
    avoidance = Avoidance(clock)
    for _ in range(4):
        avoidance.failed("a")
        clock.ms += AVOID_MS_MAX
    avoidance.failed("a")
    avoidance.answered("a")
    assert avoidance.available("a")
    avoidance.failed("a")
    clock.ms += AVOID_MS_MIN
    assert avoidance.available("a")


def test_where_all_are_avoided_the_one_whose_time_is_over_first_is_tried(clock: Clock) -> None:
    avoidance = Avoidance(clock)
    for address in ("b", "c", "a"):
        avoidance.failed(address)
        clock.ms += 1
    assert avoidance.order(["a", "b", "c"]) == ["b", "c", "a"]


def test_addresses_nothing_is_known_of_keep_their_order(clock: Clock) -> None:
    assert Avoidance(clock).order(["c", "a", "b"]) == ["c", "a", "b"]
