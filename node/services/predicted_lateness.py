"""Prediction of lateness: what comes due, and how much of it a cluster releases in the time that there is.

    coming    ▁▁█▁▁▁▁     messages due in each step
    backlog   __|\\__     grows by what comes beyond the rate, and shrinks by what is left of the rate

A fluid queue (Lindley, The theory of queues with a single server, 1952): the messages of a step are due
evenly within it, and are released in the order of their due times.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def backlogs(
    coming: NDArray[np.integer], first_ms: int, step_ms: int, waiting: int, per_s: float
) -> NDArray[np.float64]:
    """Return how many messages wait at the end of each step, shape (n,).

    Args:
        coming: messages due in each step, shape (n,).
        first_ms: what is left of the first step, of `step_ms` like the others.
        waiting: messages that wait at the beginning.
        per_s: messages released a second while some wait, more than 0.
    """
    added = coming.astype(np.float64)
    if len(added) == 0:
        return added
    added[0] += waiting
    added[0] -= per_s * first_ms / 1_000
    added[1:] -= per_s * step_ms / 1_000
    total = np.cumsum(added)
    waits: NDArray[np.float64] = total - np.minimum(np.minimum.accumulate(total), 0.0)
    return waits


def lateness_ms(backlog: NDArray[np.float64], per_s: float) -> NDArray[np.int64]:
    """Return how late the last message of each step is released, shape (n,), from what waits at its end."""
    return np.ceil(np.round(backlog * 1_000 / per_s, 6)).astype(np.int64)


def longest(lateness: NDArray[np.int64], first: int, size: int) -> NDArray[np.int64]:
    """Return the longest of each bucket of `size` steps; the first bucket has `first` steps only."""
    if len(lateness) == 0:
        return lateness
    starts = np.concatenate(([0], np.arange(first, len(lateness), size)))
    found: NDArray[np.int64] = np.maximum.reduceat(lateness, starts)
    return found
