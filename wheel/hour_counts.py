"""Counts of every hour, in columns that have a place for each hour since the epoch.

A batch that is spread over thousands of hours changes them in a few array operations. Memory is taken only
for pages of 4 KiB that hold an hour which has had a message: at most 24 bytes an hour.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tarry.wheel.message_sum import MessageSum
from tarry.wheel.state import Numbers

HOURS: Final = 1 << 21
"""Up to the year 2209; what is later is counted hour by hour, and has partitions."""
_BLOCK: Final = 1 << 16


class HourCounts:
    """Columns by hour; a place is there for every hour below `len`."""

    __slots__ = ("_beyond", "end", "far", "far_pending", "head", "message_sum", "pending", "total", "written")

    def __init__(self) -> None:
        self.written: Numbers = np.zeros(HOURS, np.uint32)
        """Units in the hour's partition."""
        self.far: Numbers = np.zeros(HOURS, np.uint32)
        """Units in the far log, behind those."""
        self.head: NDArray[np.int64] = np.zeros(HOURS, np.int64)
        """The row of the newest of them in the far log, plus 1."""
        self.far_pending: Numbers = np.zeros(HOURS, np.uint32)
        self.pending: Numbers = np.zeros(HOURS, np.uint32)
        """In partition and far log together."""
        self.end = 0
        """Behind the last hour of the columns that has had pending messages."""
        self._beyond: dict[int, int] = {}  # pending
        self.total = 0
        """Pending in all hours."""
        self.message_sum = MessageSum()
        """Of the messages of all hours."""

    def __len__(self) -> int:
        return len(self.pending)

    def add(self, hour: int, count: int) -> None:
        """Count `count` more (or fewer) pending in an hour."""
        after = self.of(hour) + count
        if after < 0:
            raise AssertionError(f"hour {hour} would have {after} pending")
        self.total += count
        if hour < len(self):
            self.pending[hour] = after
            self.end = max(self.end, hour + 1)
        elif after:
            self._beyond[hour] = after
        else:
            self._beyond.pop(hour, None)

    def of(self, hour: int) -> int:
        """Return the number of pending messages of an hour."""
        return int(self.pending[hour]) if hour < len(self) else self._beyond.get(hour, 0)

    def between(self, begin: int, end: int) -> int:
        """Return the number of pending messages of the hours from `begin` on, before `end`."""
        beyond = sum(count for at, count in self._beyond.items() if begin <= at < end)
        return int(self.pending[begin : min(end, self.end)].sum(dtype=np.int64)) + beyond

    def by_hour(self, begin: int, end: int) -> Numbers:
        """Return the number of pending messages of each hour from `begin` on, before `end`."""
        found = np.zeros(end - begin, np.uint32)
        within = self.pending[begin : min(end, self.end)]
        found[: len(within)] = within
        for hour, count in self._beyond.items():
            if begin <= hour < end:
                found[hour - begin] = count
        return found

    def beyond(self, begin: int, end: int) -> list[int]:
        """Return the hours behind the columns that have pending messages, from `begin` on, before `end`."""
        return [hour for hour in self._beyond if begin <= hour < end]

    def write(self, hour: int, units: int) -> None:
        """Note how many units the partition of an hour has."""
        if hour < len(self):
            self.written[hour] = units

    def far_of(self, hour: int) -> int:
        """Return the number of an hour's units in the far log."""
        return int(self.far[hour]) if hour < len(self) else 0

    def far_pending_of(self, hour: int) -> int:
        """Return the number of an hour's pending units in the far log."""
        return int(self.far_pending[hour]) if hour < len(self) else 0

    def from_hour(self, hour: int) -> Iterator[int]:
        """Yield the hours with pending messages, from `hour` on."""
        if self.total == 0:
            return
        start, size = hour, 64  # mostly one of the next
        while start < self.end:
            for found in np.flatnonzero(self.pending[start : start + size]).tolist():
                yield start + found
            start, size = start + size, min(8 * size, _BLOCK)
        yield from sorted(at for at in self._beyond if at >= hour)
