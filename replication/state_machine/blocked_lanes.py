"""Lanes that wait for a retry, and their parts of a checkpoint.

    all lanes, ascending:   (1, 3) (1, 9) … (1, 70) │ (1, 71) … (2, 5) │ (2, 8) …
                            one range, at most 16   │ next range       │

A part has the lanes of one range and is kept until one of them changes. Where a range ends depends on the
order of the changes; the parts laid end to end do not, so replicas agree.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tarry.proto import tarry_log_pb2 as log_pb

RANGE_LANES_MAX: Final = 16
"""So that building a part costs no more than building a queue's: some 10 us."""

Lane = tuple[int, int]
"""Retry queue and lane."""

Retry = tuple[int, int]
"""Hour and global index of the retry ahead."""

LOWEST: Final[Lane] = (0, 0)
"""Below every lane: none is 0."""


class Blocked(Mapping[Lane, Retry]):
    """By lane, and by retry: what ends or goes costs what it touches, however many are blocked."""

    def __init__(self) -> None:
        self._of_queue: dict[int, dict[int, Retry]] = {}
        self._lanes: dict[Retry, Lane] = {}
        self._lows: list[Lane] = [LOWEST]  # the lower bounds of the ranges, ascending
        self._ranges: dict[Lane, list[Lane]] = {LOWEST: []}  # by lower bound, each ascending
        self._parts: dict[Lane, bytes] = {LOWEST: b""}  # of a checkpoint, by lower bound
        self._changed: set[Lane] = set()  # lower bounds of the ranges whose parts are to be built anew

    def __getitem__(self, key: Lane) -> Retry:
        return self._of_queue[key[0]][key[1]]

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes.values())

    def __len__(self) -> int:
        return len(self._lanes)

    def any_of(self, queue: int) -> bool:
        """Return whether any lane of the retry queue is blocked."""
        return bool(self._of_queue.get(queue))

    def retry(self, queue: int, lane: int) -> Retry | None:
        """Return the retry that the lane waits for."""
        of_queue = self._of_queue.get(queue)
        return of_queue.get(lane) if of_queue else None

    def add(self, queue: int, lane: int, retry: Retry) -> None:
        """The lane waits for the retry, unless it waits for one already."""
        if self.retry(queue, lane) is None:
            self._of_queue.setdefault(queue, {})[lane] = retry
            self._lanes[retry] = blocked = queue, lane
            self._put(blocked)

    def end(self, retries: Iterable[Retry]) -> list[Lane]:
        """Nothing waits for the retries any more; return the lanes that did."""
        ended = [lane for retry in retries if (lane := self._lanes.pop(retry, None))]
        for lane in ended:
            del self._of_queue[lane[0]][lane[1]]
            self._remove(lane)
        return ended

    def delete(self, queue: int) -> None:
        """The retry queue has been deleted."""
        for retry in self._of_queue.pop(queue, {}).values():
            del self._lanes[retry]
        first = bisect_right(self._lows, (queue, 0)) - 1
        end = bisect_left(self._lows, (queue + 1, 0))
        for low in self._lows[first + 1 : end - 1]:  # the outer two may have others' lanes
            self._ranges[low].clear()
        for low in (self._lows[first], self._lows[end - 1]):
            self._ranges[low] = [lane for lane in self._ranges[low] if lane[0] != queue]
            self._changed.add(low)
        self._lows[first:end] = [low for low in self._lows[first:end] if not self._dropped(low)]

    def build(self, most: int) -> int:
        """Build so many parts of a checkpoint anew, of ranges that have changed; return how many."""
        most = min(most, len(self._changed))
        for _ in range(most):
            low = self._changed.pop()
            self._parts[low] = self._part(self._ranges[low])
        return most

    def capture(self) -> list[bytes]:
        """Return the parts: laid end to end they are a Checkpoint with all lanes, ascending."""
        self.build(len(self._changed))
        return list(map(self._parts.__getitem__, self._lows))

    def _part(self, lanes: Iterable[Lane]) -> bytes:
        checkpoint = log_pb.Checkpoint()
        for queue, lane in lanes:
            hour, index = self._of_queue[queue][lane]
            checkpoint.blocked.add(queue=queue, lane=lane, hour=hour, global_index=index)
        return checkpoint.SerializeToString()

    def _low_of(self, lane: Lane) -> Lane:
        return self._lows[bisect_right(self._lows, lane) - 1]

    def _put(self, lane: Lane) -> None:
        low = self._low_of(lane)
        held = self._ranges[low]
        insort(held, lane)
        self._changed.add(low)
        if len(held) > RANGE_LANES_MAX:
            upper = held[len(held) // 2 :]
            del held[len(held) // 2 :]
            insort(self._lows, upper[0])
            self._ranges[upper[0]] = upper
            self._changed.add(upper[0])

    def _remove(self, lane: Lane) -> None:
        low = self._low_of(lane)
        held = self._ranges[low]
        del held[bisect_left(held, lane)]
        self._changed.add(low)
        if self._dropped(low):
            del self._lows[bisect_left(self._lows, low)]

    def _dropped(self, low: Lane) -> bool:
        """Drop a range without lanes, but for the lowest, which always is; return whether it was dropped."""
        if self._ranges[low] or low == LOWEST:
            return False
        del self._ranges[low]
        self._parts.pop(low, None)
        self._changed.discard(low)
        return True
