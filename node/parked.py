"""Messages of a feed set aside because one of their lane is under way."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Place: TypeAlias = tuple[int, int, int]
"""Due time, offset, maybe_duplicate."""


class Parked:
    """By lane, in the order of due times and offsets."""

    def __init__(self) -> None:
        self.count = 0
        self._lanes: dict[int, list[Place]] = {}  # each a heap

    def lanes(self) -> Collection[int]:
        """Return the lanes that have any."""
        return self._lanes.keys()

    def put(self, units: NDArray[np.void]) -> None:
        """Set units aside (dtype feed.WAITING)."""
        columns = (units[name].tolist() for name in ("lane", "due_ms", "offset", "maybe_duplicate"))
        for lane, due_ms, offset, maybe_duplicate in zip(*columns, strict=True):
            heapq.heappush(self._lanes.setdefault(lane, []), (due_ms, offset, maybe_duplicate))
        self.count += len(units)

    def take_first(self, lanes: Iterable[int]) -> list[Place]:
        """Take out the first of each of these lanes that has any."""
        first = []
        for lane in lanes:
            if parked := self._lanes.get(lane):
                first.append(heapq.heappop(parked))
                if not parked:
                    del self._lanes[lane]
        self.count -= len(first)
        return first

    def forget(self, offsets: Collection[int]) -> None:
        """Take out what has these offsets."""
        for lane, parked in list(self._lanes.items()):
            left = [one for one in parked if one[1] not in offsets]
            self.count -= len(parked) - len(left)
            heapq.heapify(left)
            self._lanes[lane] = left
            if not left:
                del self._lanes[lane]
