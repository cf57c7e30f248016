"""Which hours still have something pending, so that nothing turns idly to find out."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator


class PendingHours:
    """Pending messages per hour, and the hours with any, in order; a change costs a binary search."""

    __slots__ = ("_counts", "_order", "total")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._order: list[int] = []
        self.total = 0

    def add(self, hour: int, count: int) -> None:
        """Count `count` more (or fewer) pending in an hour."""
        if count == 0:
            return
        before = self._counts.get(hour, 0)
        after = before + count
        if after < 0:
            raise AssertionError(f"hour {hour} would have {after} pending")
        if before == 0:
            insort(self._order, hour)
        if after == 0:
            del self._order[bisect_left(self._order, hour)]
            self._counts.pop(hour, None)
        else:
            self._counts[hour] = after
        self.total += count

    def of(self, hour: int) -> int:
        """How many are pending in an hour."""
        return self._counts.get(hour, 0)

    def from_hour(self, hour: int) -> Iterator[int]:
        """The hours with any, from `hour` on; nothing may be added meanwhile."""
        order = self._order
        for at in range(bisect_left(order, hour), len(order)):
            yield order[at]

    def counts(self) -> dict[int, int]:
        """How many are pending in each hour that has any, in order."""
        return {hour: self._counts[hour] for hour in self._order}
