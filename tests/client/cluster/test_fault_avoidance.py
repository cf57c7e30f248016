"""Avoidance: failed nodes come last for a while."""

from __future__ import annotations

import pytest

from tarry.client.cluster.fault_avoidance import AVOID_MS, Avoidance


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
    clock.ms += AVOID_MS - 1
    assert not avoidance.available("a")
    clock.ms += 1
    assert avoidance.available("a")
    assert avoidance.order(["a", "b", "c"]) == ["a", "b", "c"]


def test_an_answer_clears_a_failure(clock: Clock) -> None:
    avoidance = Avoidance(clock)
    avoidance.failed("a")
    avoidance.answered("a")
    assert avoidance.available("a")


def test_two_nodes_that_fail_in_turn_are_asked_in_turn(clock: Clock) -> None:
    avoidance = Avoidance(clock)
    for address in "abababab":
        assert avoidance.order(["a", "b"])[0] == address
        avoidance.failed(address)
        clock.ms += 1_000


def test_where_all_are_avoided_the_one_whose_time_is_over_first_is_tried(clock: Clock) -> None:
    avoidance = Avoidance(clock)
    for address in ("b", "c", "a"):
        avoidance.failed(address)
        clock.ms += 1
    assert avoidance.order(["a", "b", "c"]) == ["b", "c", "a"]


def test_addresses_nothing_is_known_of_keep_their_order(clock: Clock) -> None:
    assert Avoidance(clock).order(["c", "a", "b"]) == ["c", "a", "b"]
