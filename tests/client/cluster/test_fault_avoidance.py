"""Avoidance: slow and failing nodes come last for a while."""

from __future__ import annotations

import pytest

from tarry.client.cluster.fault_avoidance import Avoidance, avoid_ms


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000.0

    def __call__(self) -> float:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.parametrize(
    ("latency_ms", "expected_ms"),
    [
        (0, 0),
        (49, 0),
        (100, 0),
        (549, 0),
        (550, 2_000),
        (1_800, 5_000),
        (3_000, 6_000),
        (5_000, 10_000),
        (60_000, 30_000),
    ],
)
def test_the_slower_the_answer_the_longer_the_node_is_avoided(latency_ms: int, expected_ms: int) -> None:
    assert avoid_ms(latency_ms) == expected_ms


def test_a_failed_node_comes_last_until_ten_seconds_are_over(clock: Clock) -> None:
    table = Avoidance(clock)
    table.failed("a")
    assert table.order(["a", "b", "c"]) == ["b", "c", "a"]
    clock.ms += 9_999
    assert not table.available("a")
    clock.ms += 1
    assert table.available("a")
    assert table.order(["a", "b", "c"]) == ["a", "b", "c"]


def test_a_quick_answer_clears_a_failure(clock: Clock) -> None:
    table = Avoidance(clock)
    table.failed("a")
    table.answered("a", 3)
    assert table.available("a")


def test_where_all_are_avoided_the_one_whose_time_is_over_first_is_tried(clock: Clock) -> None:
    table = Avoidance(clock)
    table.answered("a", 20_000)
    table.answered("b", 600)
    table.failed("c")
    assert table.order(["a", "b", "c"]) == ["b", "c", "a"]


def test_addresses_nothing_is_known_of_keep_their_order(clock: Clock) -> None:
    assert Avoidance(clock).order(["c", "a", "b"]) == ["c", "a", "b"]
