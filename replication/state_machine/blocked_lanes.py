"""Lanes that wait for a retry, and their parts of a checkpoint.

    of one retry queue, ascending:   3 9 … 70 │ 71 … 80 │ 93 …
                                     a range, │ the next range
                                     at most 16

A part has the lanes of one range and is kept until one of them changes. Where a range ends depends on the
order of the changes; the parts laid end to end do not, so replicas agree.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from operator import attrgetter
from typing import Final

from tarry.proto import tarry_log_pb2 as log_pb

RANGE_LANES_MAX: Final = 16
"""So that building a part costs no more than building a queue's: some 10 us."""

Lane = tuple[int, int]
"""Retry queue and lane."""

Retry = tuple[int, int]
"""Hour and global index of the retry ahead."""

LOWEST: Final = 0
"""Below every lane."""


class BlockedLanes(Mapping[Lane, Retry]):
    """By lane, and by retry: what ends or goes costs what it touches, however many are blocked."""

    def __init__(self) -> None:
        self._queues: dict[int, _Queue] = {}
        self._numbers: list[int] = []  # of those queues, ascending
        self._lanes: dict[Retry, Lane] = {}  # of queues that were deleted as well, until ``build`` frees them
        self._deleted: list[_Queue] = []  # those queues, freed a range at a time
        self._changed: set[tuple[int, int]] = set()  # queue and lower bound of ranges to be built anew

    def __getitem__(self, key: Lane) -> Retry:
        return self._queues[key[0]].retries[key[1]]

    def __iter__(self) -> Iterator[Lane]:
        return ((number, lane) for number, queue in self._queues.items() for lane in queue.retries)

    def __len__(self) -> int:
        return sum(len(queue.retries) for queue in self._queues.values())

    def __bool__(self) -> bool:
        return bool(self._queues)

    def any_of(self, queue: int) -> bool:
        """Return whether any lane of the retry queue is blocked."""
        return queue in self._queues

    def retry(self, queue: int, lane: int) -> Retry | None:
        """Return the retry that the lane waits for."""
        known = self._queues.get(queue)
        return known.retries.get(lane) if known else None

    def add(self, queue: int, lane: int, retry: Retry) -> None:
        """Block the lane until the retry has ended, unless it waits for one already."""
        known = self._queues.get(queue)
        if known is None:
            known = self._queues[queue] = _Queue(queue)
            insort(self._numbers, queue)
        if lane not in known.retries:
            self._lanes[retry] = queue, lane
            for low in known.put(lane, retry):
                self._changed.add((queue, low))

    def end(self, retries: Iterable[Retry]) -> list[Lane]:
        """Open the lanes that wait for the retries; return them."""
        named = [known for retry in retries if (known := self._lanes.pop(retry, None))]
        ended = [known for known in named if known[0] in self._queues]
        for number, lane in ended:
            queue = self._queues[number]
            self._changed.add((number, queue.remove(lane)))
            if not queue.retries:
                self._forget(number)
        return ended

    def delete(self, queue: int) -> None:
        """Forget the lanes of a retry queue that was deleted, whose number is given to no other."""
        if queue in self._queues:
            self._deleted.append(self._forget(queue))

    def _forget(self, number: int) -> _Queue:
        del self._numbers[bisect_left(self._numbers, number)]
        return self._queues.pop(number)

    def build(self, most: int) -> int:
        """Build so many parts of a checkpoint anew, of ranges that have changed; return how many.

        Then some of what deleted queues have left is freed: it counts likewise.
        """
        built = min(most, len(self._changed))
        for _ in range(built):
            number, low = self._changed.pop()
            if (queue := self._queues.get(number)) is not None:
                queue.build(low)
        return built + self._free(most - built)

    def _free(self, most: int) -> int:
        freed = 0
        while self._deleted and freed < most:
            queue = self._deleted[-1]
            for retry in queue.drop():
                self._lanes.pop(retry, None)
            if not queue.retries:
                self._deleted.pop()
            freed += 1
        return freed

    def free(self) -> None:
        """Free all lanes, a range at a time. For a thread, beside which others run."""
        for number in list(self._queues):
            self.delete(number)
        while self._changed:
            self._changed.pop()
        while self._free(1):
            pass

    def capture(self) -> list[bytes]:
        """Return the parts: laid end to end they are a Checkpoint with all lanes, ascending."""
        self.build(len(self._changed))
        queues = map(self._queues.__getitem__, self._numbers)
        return list(chain.from_iterable(map(attrgetter("parts"), queues)))


class _Queue:
    """The blocked lanes of one retry queue, in ranges."""

    __slots__ = ("_lows", "_number", "_ranges", "parts", "retries")

    def __init__(self, number: int) -> None:
        self._number = number
        self.retries: dict[int, Retry] = {}  # by lane
        self._lows = [LOWEST]  # the lower bounds of the ranges, ascending
        self._ranges: list[list[int]] = [[]]  # each range's lanes, ascending
        self.parts = [b""]  # of a checkpoint, by range

    def put(self, lane: int, retry: Retry) -> list[int]:
        """Add a lane; return the lower bounds of the ranges that are to be built anew."""
        self.retries[lane] = retry
        place = self._place(lane)
        held = self._ranges[place]
        insort(held, lane)
        if len(held) <= RANGE_LANES_MAX:
            return [self._lows[place]]
        upper = held[len(held) // 2 :]
        del held[len(held) // 2 :]
        self._lows.insert(place + 1, upper[0])
        self._ranges.insert(place + 1, upper)
        self.parts.insert(place + 1, b"")
        return [self._lows[place], upper[0]]

    def remove(self, lane: int) -> int:
        """Remove a lane; return the lower bound of its range, which is dropped if it was the last there."""
        del self.retries[lane]
        place = self._place(lane)
        low, held = self._lows[place], self._ranges[place]
        del held[bisect_left(held, lane)]
        if not held and place:
            del self._lows[place], self._ranges[place], self.parts[place]
        return low

    def drop(self) -> list[Retry]:
        """Free the last range and its part; return the retries that its lanes waited for."""
        del self._lows[-1], self.parts[-1]
        return [self.retries.pop(lane) for lane in self._ranges.pop()]

    def build(self, low: int) -> None:
        """Build the part of a range anew, if there still is one with the lower bound."""
        place = self._place(low)
        if self._lows[place] != low:
            return
        checkpoint = log_pb.Checkpoint()
        for lane in self._ranges[place]:
            hour, index = self.retries[lane]
            checkpoint.blocked.add(queue=self._number, lane=lane, hour=hour, global_index=index)
        self.parts[place] = checkpoint.SerializeToString()

    def _place(self, lane: int) -> int:
        return bisect_right(self._lows, lane) - 1
