"""Histograms of lateness: how long after its due time something happened to a message."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

import numpy as np
from numpy.typing import NDArray

BOUNDS_MS: Final = (1, 2.5, 5, 10, 25, 50, 100, 250, 1_000, 10_000, 60_000, 3_600_000)
"""Upper bounds of the buckets; a last one has what was later."""
_BOUNDS: Final = np.array(BOUNDS_MS)
_FEW: Final = 4
"""Messages up to which a loop costs less than numpy's calls."""


class Lateness:
    """One histogram. What happens before the due time is not late: it counts as 0."""

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        """By bucket, each without those before it."""
        self.sum_ms = 0

    def add(self, at_ms: int, due_ms: NDArray[np.int64]) -> None:
        """Count messages, due times of shape (n,), to which it happened at that time."""
        if len(due_ms) <= _FEW:
            for due in due_ms.tolist():
                late_ms = max(0, at_ms - due)
                self.counts[bisect_left(BOUNDS_MS, late_ms)] += 1
                self.sum_ms += late_ms
            return
        late = np.maximum(at_ms - due_ms.astype(np.int64, copy=False), 0)
        found = np.bincount(np.searchsorted(_BOUNDS, late, side="left"), minlength=len(self.counts))
        self.counts = [had + more for had, more in zip(self.counts, found.tolist(), strict=True)]
        self.sum_ms += int(late.sum())
