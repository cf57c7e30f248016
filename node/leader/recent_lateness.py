"""Recent lateness: how late the leader has released messages in the last minute.

    of all, by second      … 58 │ 59 │ 00 │ 01 …     each a histogram, and the longest
    by topic, by 10 s      … 40 ──── │ 50 ──── …     each a coarser one for every topic that has released

The memory is the same whatever is released. What was released before its due time is in time: 0 ms late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tarry.proto import tarry_operator_pb2 as pb
from tarry.wheel.state import MARK, Numbers, Taken, Times

TOPICS_MAX: Final = 4_096
"""Of which it is known, in 3.2 MB; another one's is once one of these has released nothing for a minute."""
_BITS: Final = 31
"""Of ms: what is later than 24 days is counted as that late."""


def _edges(steps: int) -> Times:
    """Return the most that each bin has, ms: one each up to 2 * steps, then so many to twice as much."""
    doublings = range(1, _BITS + 2 - (2 * steps).bit_length())
    further = [(steps + step) << power for power in doublings for step in range(1, steps + 1)]
    return np.array([*range(2 * steps + 1), *further], np.int64)


class RecentLateness:
    """Made anew with each leadership."""

    def __init__(self) -> None:
        self._all = _Histograms(periods=60, period_ms=1_000, rows=1, edges_ms=_edges(8))
        self._topics = _Histograms(periods=6, period_ms=10_000, rows=TOPICS_MAX, edges_ms=_edges(1))
        self._row_of = np.empty(0, np.int64)  # by queue; -1: none
        self._queue_of = np.full(TOPICS_MAX, -1, np.int64)  # by row

    def add(self, now_ms: int, released: Sequence[Taken]) -> None:
        """Count what has been released now."""
        if self._topics.turn(now_ms):
            self._free_rows()
        self._all.turn(now_ms)
        for taken in released:
            if len(taken):
                late_ms = np.maximum(now_ms - taken.due_ms, 0)
                self._all.add(np.zeros(len(late_ms), np.int64), late_ms)
                rows = self._rows(taken.topic & ~MARK)
                known = rows >= 0
                self._topics.add(rows[known], late_ms[known])

    def of_all(self, now_ms: int) -> pb.Lateness | None:
        """Return that of all topics and retries; None where nothing was released."""
        self._all.turn(now_ms)
        return self._all.told().get(0)

    def by_topic(self, now_ms: int) -> dict[int, pb.Lateness]:
        """Return that of each queue that has had something, by its number; percentiles to a power of two."""
        if self._topics.turn(now_ms):
            self._free_rows()
        queues = self._queue_of.tolist()
        return {queues[row]: told for row, told in self._topics.told().items()}

    def _rows(self, queue: Numbers) -> NDArray[np.int64]:
        """Return the queues' rows, shape (n,); -1 for those that get none."""
        most = int(queue.max()) + 1
        if most > len(self._row_of):
            grown = np.full(2 * most, -1, np.int64)
            grown[: len(self._row_of)] = self._row_of
            self._row_of = grown
        rows = self._row_of[queue]
        unknown = rows < 0
        if not unknown.any():
            return rows
        fresh = np.unique(queue[unknown])
        free = np.flatnonzero(self._queue_of < 0)[: len(fresh)]
        self._row_of[fresh[: len(free)]] = free
        self._queue_of[free] = fresh[: len(free)]
        return self._row_of[queue]

    def _free_rows(self) -> None:
        idle = np.flatnonzero((self._queue_of >= 0) & self._topics.idle())
        self._row_of[self._queue_of[idle]] = -1
        self._queue_of[idle] = -1


class _Histograms:
    """Rows of histograms for each of the last periods."""

    def __init__(self, periods: int, period_ms: int, rows: int, edges_ms: Times) -> None:
        self._period_ms, self._edges_ms = period_ms, edges_ms
        self._counts = np.zeros((periods, rows, len(edges_ms)), np.uint32)
        self._longest_ms = np.zeros((periods, rows), np.int64)
        self._at = 0  # the present period, from the epoch on

    def turn(self, now_ms: int) -> bool:
        """Begin the period of now, and forget the oldest; False where it has begun already."""
        at, periods = now_ms // self._period_ms, len(self._counts)
        if at <= self._at:
            return False
        old = np.arange(max(self._at + 1, at - periods + 1), at + 1) % periods
        self._counts[old] = 0
        self._longest_ms[old] = 0
        self._at = at
        return True

    def add(self, rows: NDArray[np.int64], late_ms: Times) -> None:
        """Count messages of these rows in the present period, columns of shape (n,)."""
        place = self._at % len(self._counts)
        counts = self._counts[place]
        if not late_ms.any():  # as it mostly is
            counts[:, 0] += np.bincount(rows, minlength=len(counts)).astype(np.uint32)
            return
        bins = np.searchsorted(self._edges_ms, np.minimum(late_ms, self._edges_ms[-1]))
        np.add.at(counts.reshape(-1), rows * len(self._edges_ms) + bins, np.uint32(1))
        np.maximum.at(self._longest_ms[place], rows, late_ms)

    def idle(self) -> NDArray[np.bool_]:
        """Flag the rows that have nothing, shape (rows,)."""
        return np.asarray(~self._counts.any(axis=(0, 2)))

    def told(self) -> dict[int, pb.Lateness]:
        """Return what the rows that have something say of all periods."""
        counts = self._counts.sum(axis=0, dtype=np.int64)
        rows = np.flatnonzero(counts.any(axis=1))
        up_to = counts[rows].cumsum(axis=1)
        released, longest_ms = up_to[:, -1], self._longest_ms.max(axis=0)[rows]
        p50_ms, p99_ms = (
            np.minimum(self._edges_ms[_first_with(up_to, released, percent)], longest_ms)
            for percent in (50, 99)
        )
        columns = (rows, released, p50_ms, p99_ms, longest_ms)
        return {
            row: pb.Lateness(released=n, p50_ms=p50, p99_ms=p99, max_ms=most)
            for row, n, p50, p99, most in zip(*(column.tolist() for column in columns), strict=True)
        }


def _first_with(up_to: NDArray[np.int64], released: NDArray[np.int64], percent: int) -> NDArray[np.intp]:
    """Return the first bin of each row up to which there are so many percent of what was released."""
    wanted = -(-released * percent // 100)
    first: NDArray[np.intp] = (up_to >= wanted[:, None]).argmax(axis=1)
    return first
