"""Where something is pending: which hours, so that nothing turns idly to find out, and which topics."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

import numpy as np

from tarry.wheel.state import MARK, Numbers


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


class PendingTopics:
    """Pending messages per topic; a change costs one array operation, whatever the number of topics."""

    __slots__ = ("_counts",)

    def __init__(self, counts: Sequence[int] = ()) -> None:
        self._counts = np.array(counts, np.int64)

    def add(self, topic: Numbers, sign: int = 1) -> None:
        """Count messages of these topics, shape (n,), in, or with sign -1 out."""
        if len(topic) == 0:
            return
        topic = topic & ~MARK
        most = int(topic.max())
        if most >= len(self._counts):
            self._counts = np.append(self._counts, np.zeros(most + 1, np.int64))
        np.add.at(self._counts, topic, sign)

    def of(self, topic: int) -> int:
        """How many of a topic are pending."""
        return int(self._counts[topic]) if topic < len(self._counts) else 0

    def capture(self) -> tuple[int, ...]:
        """All counts by topic, without the zeros at the end."""
        some = np.flatnonzero(self._counts)
        return tuple(self._counts[: int(some[-1]) + 1].tolist()) if len(some) else ()
