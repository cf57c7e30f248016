"""Delay of a group: what it makes of a message's due time, and up to which offset its queue is looked at.

    due time ── delay ──► the group's due time: delivered from then on
                  └ its last 10 s: in memory; what is delayed for longer stays on disk, unlooked at

So millions of delayed messages cost no memory, and another delay counts at once for all of them.

A queue is in the order of release, which is nearly that of due times. A message that was released late may
lie behind one that still waits: it is looked at with that one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tarry.replication.state_machine.acknowledgements import Acknowledgements
from tarry.replication.state_machine.ready_queue import ReadyQueue

LOADED_AHEAD_MS: Final = 10_000
"""Of the delay's end, in which messages are in memory: they come in the order of their due times."""
LOOKED_AHEAD_MS: Final = LOADED_AHEAD_MS // 2
"""Before the next message's time, when that is looked at and what follows: not for each message anew."""


class Delay:
    """Delay of one feed, and where it stopped to look at its queue."""

    __slots__ = ("_due_ms", "_offset", "ms")

    def __init__(self, ms: int = 0) -> None:
        self.ms = ms
        """May be changed at any time."""
        self._offset = -1  # of the message that was too far ahead
        self._due_ms = 0

    def open(self, offset: int, due_ms: NDArray[np.int64], now_ms: int) -> int:
        """Return how many units from an offset on, due times of shape (n,), are to be looked at now."""
        self._offset = -1
        if not self.ms:
            return len(due_ms)
        shut = due_ms > now_ms + LOADED_AHEAD_MS - self.ms
        first = int(shut.argmax()) if len(shut) else 0
        if not len(shut) or not shut[first]:
            return len(due_ms)
        self._offset, self._due_ms = offset + first, int(due_ms[first])
        return first

    def stopped_ms(self, offset: int) -> int | None:
        """Return the due time of the message at an offset, where it was too far ahead; else None."""
        return self._due_ms if self.ms and offset == self._offset else None

    def looks_ms(self, offset: int) -> int | None:
        """Return when to look at the queue from an offset on; None: at once."""
        due_ms = self.stopped_ms(offset)
        return None if due_ms is None else due_ms + self.ms - LOOKED_AHEAD_MS


def delayed(queue: ReadyQueue, acknowledged: Acknowledgements, delay_ms: int, now_ms: int) -> int:
    """Return how many messages that are due wait for a group's delay. Raises UnitsDamaged.

    Where some were released in another order than they are due, the number is about right.
    """
    if not delay_ms:
        return 0
    first = place_of(queue, max(acknowledged.floor, queue.first), now_ms - delay_ms)
    return acknowledged.missing_count(first, place_of(queue, first, now_ms))


def place_of(queue: ReadyQueue, low: int, due_ms: int) -> int:
    """Return the first offset from ``low`` on that is due later, by halves. Raises UnitsDamaged."""
    high = queue.units
    while low < high:
        middle = (low + high) // 2
        if int(queue.read(middle, 1)["due_ms"][0]) <= due_ms:
            low = middle + 1
        else:
            high = middle
    return low
