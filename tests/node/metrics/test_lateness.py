"""A histogram has each message once, in the bucket of its lateness."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.node.metrics.lateness import BOUNDS_MS, Lateness

NOW_MS = 1_800_000_000_000


@given(st.lists(st.lists(st.integers(-5_000, 4_000_000), max_size=30), max_size=5))
def test_it_counts_as_one_by_one(batches: list[list[int]]) -> None:
    lateness, late_ms = Lateness(), [max(0, late) for batch in batches for late in batch]
    for batch in batches:
        lateness.add(NOW_MS, NOW_MS - np.array(batch, dtype=np.int64))
    least = (-1, *BOUNDS_MS)
    buckets = [sum(low < late <= high for late in late_ms) for low, high in zip(least, BOUNDS_MS)]  # noqa: B905
    assert lateness.counts == [*buckets, sum(late > BOUNDS_MS[-1] for late in late_ms)]
    assert lateness.sum_ms == sum(late_ms)


@pytest.mark.parametrize("n", [1, 100])
@pytest.mark.parametrize("bound", BOUNDS_MS)
def test_a_bucket_has_its_upper_bound(bound: float, n: int) -> None:
    lateness, late_ms = Lateness(), int(bound)
    lateness.add(NOW_MS, np.full(n, NOW_MS - late_ms, dtype=np.int64))
    assert lateness.counts[BOUNDS_MS.index(bound)] == n
    lateness.add(NOW_MS, np.full(n, NOW_MS - late_ms - 1, dtype=np.int64))
    assert lateness.counts[BOUNDS_MS.index(bound) + 1] == n
