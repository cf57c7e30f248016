"""A few seeds with every change; many with `python -m tests.simulation`."""

from __future__ import annotations

import pytest

from tests.simulation.seeds import simulate


@pytest.mark.parametrize("seed", range(1, 7))
def test_nothing_is_lost_doubled_or_served_by_two_under_random_faults(seed: int) -> None:
    outcome = simulate(seed, seconds=6.0)
    assert outcome.failure is None, "\n".join(outcome.history)
    assert outcome.acknowledged > 50


def test_a_seed_gives_the_same_history_every_time() -> None:
    assert simulate(11, seconds=4.0) == simulate(11, seconds=4.0)
