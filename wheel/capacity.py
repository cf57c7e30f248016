"""Room for a batch: the second that it would overfill, and the nearest one with room.

Everything is counted by the slots; no message is looked at but those that come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from tarry.wheel.columns import groups
from tarry.wheel.state import HOUR_MS, HOUR_SECONDS, SECOND_MS, Numbers, Times

LOOK_HOURS: Final = 24
"""The hours ahead in which room is looked for."""


@dataclass(frozen=True, slots=True)
class Full:
    """A second that would hold more than it may."""

    position: int
    """Of the first message in it, in the batch."""
    due_ms: int
    """The second's begin."""
    pending: int
    coming: int
    nearest_ms: int | None
    """The begin of the nearest second with room for as many; None: none within a day."""


def full_second(
    pending_in_hour: Callable[[int], int],
    pending_per_second: Callable[[int], Numbers],
    due_ms: Times,
    messages_max: int,
    first_ms: int,
) -> Full | None:
    """Return the first second that messages due then, shape (n,), would overfill; None where all fit.

    `first_ms` is the earliest time to offer instead.
    """
    for hour, rows in groups(due_ms // HOUR_MS):
        due = due_ms[rows]
        if pending_in_hour(hour) + len(due) <= messages_max:
            continue
        second = due // SECOND_MS - hour * HOUR_SECONDS
        coming = np.bincount(second, minlength=HOUR_SECONDS)
        pending = pending_per_second(hour)
        over = (coming > 0) & (pending + coming > messages_max)
        if not bool(over.any()):
            continue
        at = int(over.argmax())
        absolute, count = hour * HOUR_SECONDS + at, int(coming[at])
        first = -(-first_ms // SECOND_MS)
        nearest = _nearest(pending_per_second, {hour: coming}, absolute, messages_max - count, first)
        position = int((due_ms // SECOND_MS == absolute).argmax())
        return Full(position, absolute * SECOND_MS, int(pending[at]), count, nearest)
    return None


def _nearest(
    pending_per_second: Callable[[int], Numbers],
    coming: Mapping[int, np.ndarray[tuple[int], np.dtype[np.intp]]],
    second: int,
    pending_max: int,
    first: int,
) -> int | None:
    """Return the begin, ms, of the second from `first` on nearest to `second`, with `pending_max` or less."""
    hour = second // HOUR_SECONDS
    blocks = [(hour - 1, hour + 2), *((at, at + 1) for at in range(hour + 2, hour + LOOK_HOURS))]
    for begin, end in blocks:
        counts = np.concatenate([pending_per_second(at) + coming.get(at, 0) for at in range(begin, end)])
        seconds = begin * HOUR_SECONDS + np.flatnonzero(counts <= pending_max)
        seconds = seconds[seconds >= first]
        if len(seconds):
            return int(seconds[np.abs(seconds - second).argmin()]) * SECOND_MS
    return None
