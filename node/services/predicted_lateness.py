"""Prediction of lateness: what comes due, and how much of it a cluster releases in the time that there is.

    coming      ▁▁▁█▁▁▁        messages due in each step
    may begin   ▁▁▁┐           at its due time; of a crowd earlier, and then all that is due before it, too
    released    ▁▁▁▄▄▄▁        at most so many a second, in the order of due times

A fluid queue with one server (Lindley, The theory of queues with a single server, 1952), by the rules of the
dispatcher. Messages of a step are due evenly within it, those of a crowd at its beginning.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Releases(NamedTuple):
    """Abilities of a cluster."""

    per_s: float
    """Messages released a second while more are to be released, more than 0."""
    crowd: int
    """A second with more messages is begun with early."""
    ahead_ms: int
    """So early at most."""


def lateness_ms(
    coming: NDArray[np.integer], first_ms: int, step_ms: int, waiting: int, releases: Releases
) -> NDArray[np.int64]:
    """Return how late the last message due in each step is released, shape (n,), or one due at its end.

    Args:
        coming: messages due in each step, shape (n,), the present one first.
        first_ms: what is left of the first step, of `step_ms` like the others.
        waiting: messages that are due before the first step, and not released.
    """
    count = len(coming)
    if count == 0:
        return np.empty(0, np.int64)
    one_ms = 1_000 / releases.per_s
    end = first_ms + step_ms * np.arange(count, dtype=np.float64)  # from now on
    begin = end - step_ms
    crowded = coming * 1_000.0 > releases.crowd * float(step_ms)
    done = (waiting + np.cumsum(coming, dtype=np.float64)) * one_ms  # of work, ms, with each step
    before = np.concatenate(([waiting * one_ms], done[:-1]))
    # A crowd is begun with so early, and what is due before it goes first.
    early = np.where(crowded, begin - releases.ahead_ms, np.inf)
    early = np.minimum.accumulate(early[::-1])[::-1]
    first_may = np.maximum(np.minimum(begin, early), 0.0)
    last_may = np.maximum(np.where(crowded, first_may, np.minimum(end, early)), 0.0)
    at_once = (done - before) * np.clip((end - last_may) / step_ms, 0.0, 1.0)  # of work, when a crowd begins
    waits = np.maximum(first_may - before, last_may - (done - at_once))
    idle = np.maximum.accumulate(np.maximum(waits, 0.0))
    late = done + idle - np.where(crowded, begin, end)
    return np.ceil(np.round(np.maximum(late, 0.0), 6)).astype(np.int64)


def longest(lateness: NDArray[np.int64], first: int, size: int) -> NDArray[np.int64]:
    """Return the longest of each bucket of `size` steps; the first bucket has `first` steps only."""
    if len(lateness) == 0:
        return lateness
    starts = np.concatenate(([0], np.arange(first, len(lateness), size)))
    found: NDArray[np.int64] = np.maximum.reduceat(lateness, starts)
    return found
