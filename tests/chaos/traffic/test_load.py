"""Loads: which one a run has follows from its seed, and each scenario meets every one in some seeds."""

import random

import pytest

from tarry.chaos.scenario import Scenario
from tarry.chaos.traffic.load import BULK, LATER_MS, LOADS, drawn, later_due_ms


async def _nothing(run: object) -> None:
    """Is done."""


def test_the_load_follows_from_the_seed_and_the_name() -> None:
    allowed = Scenario(name="s", play=_nothing, what="").loads
    assert [drawn(seed, "s", allowed) for seed in range(9)] == [
        drawn(seed, "s", allowed) for seed in range(9)
    ]
    assert {drawn(seed, "s", allowed).name for seed in range(30)} == set(LOADS)
    assert {drawn(1, name, allowed).name for name in "abcdefghijkl"} == set(LOADS)


@pytest.mark.parametrize("name", LOADS)
def test_a_scenario_may_be_kept_to_one_load(name: str) -> None:
    assert {drawn(seed, "s", (name,)).name for seed in range(9)} == {name}


def test_what_is_due_later_is_spread_over_all_orders_of_magnitude() -> None:
    due_ms = later_due_ms(0, BULK.batch_messages, random.Random(1))
    low, high = LATER_MS
    assert len(due_ms) == BULK.batch_messages
    assert low <= min(due_ms) and max(due_ms) <= high
    middle = (low * high) ** 0.5
    assert 0.4 < sum(each < middle for each in due_ms) / len(due_ms) < 0.6
