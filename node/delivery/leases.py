"""Leases of a group: which end when."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tarry.node.delivery.feed import Feed
from tarry.node.delivery.in_flight import Batch

KEPT_MIN: Final = 1_024
"""Leases, live or not, from which on those that nothing is left of are looked for."""


class Leases:
    """A heap by the end. What is settled stays until it comes up, or makes out half of the heap."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Feed, Batch]] = []
        self._numbers = count()
        self._kept_max = KEPT_MIN

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[tuple[Feed, Batch]]:
        return ((feed, batch) for _, _, feed, batch in self._heap)

    def add(self, feed: Feed, batch: Batch) -> None:
        """Keep a lease of the feed's."""
        heapq.heappush(self._heap, (batch.until_ms, next(self._numbers), feed, batch))
        if len(self._heap) > self._kept_max:
            self._heap = [lease for lease in self._heap if lease[3].left]
            heapq.heapify(self._heap)
            self._kept_max = max(KEPT_MIN, 2 * len(self._heap))

    def expire(self, now_ms: int, most: int) -> Iterator[tuple[Feed, NDArray[np.uint64]]]:
        """Give up what is over: of each such lease what is still in flight, if anything.

        Of ``most`` messages, and what is beyond in the same lease; others that are over are left.
        """
        while most > 0 and self._heap and (self._heap[0][3].left == 0 or self._heap[0][0] <= now_ms):
            _, _, feed, batch = heapq.heappop(self._heap)
            expired = feed.expire(batch)
            most -= len(expired)
            if len(expired):
                yield feed, expired

    def next_ms(self) -> int | None:
        """Return when the next one may be over."""
        return self._heap[0][0] if self._heap else None

    def clear(self) -> None:
        """Forget them all."""
        self._heap.clear()
