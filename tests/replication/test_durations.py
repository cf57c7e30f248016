"""A histogram has each duration once, in the bucket that begins behind the bound before it."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.replication.durations import BOUNDS_S, Durations


@given(st.lists(st.floats(0, 100)))
def test_it_counts_each_once(took_s: list[float]) -> None:
    durations = Durations()
    for took in took_s:
        durations.add(took)
    bounds = (-1.0, *BOUNDS_S, math.inf)
    counts = [sum(low < took <= high for took in took_s) for low, high in itertools.pairwise(bounds)]
    assert durations.counts == counts
    assert durations.sum_s == pytest.approx(sum(took_s))
