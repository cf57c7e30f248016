"""Lanes of one group at the leader: what has an ordering key is delivered one after another.

    waiting ──take──► taken: delivered, and its settlement not committed ──leave──► the next
       │ its lane is taken, held, or blocked by a retry
       ▼
    parked, by (due, offset), until the lane is open

That a retry is waited for is in the log (``Queues.blocked``), so that every leader knows it.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Container, Iterable, KeysView
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tarry.replication.state_machine.queues import Queues

Place = tuple[int, int]
"""Queue and offset."""


class Lanes:
    """Shared by the feeds of a group, so that a retry and what follows it keep their order."""

    def __init__(self, queues: Queues, queue: int, retry_queue: int) -> None:
        self._queues = queues
        self._retry_queue = retry_queue
        self._taken: dict[int, Place] = {}
        self._lane_at: dict[Place, int] = {}  # the same, the other way round
        self._held: Counter[int] = Counter()  # how many of the lane an earlier leader may have delivered
        self._held_at: dict[int, dict[int, int]] = {queue: {}, retry_queue: {}}  # their lanes, by offset
        self._opened: dict[int, set[int]] = {queue: set(), retry_queue: set()}  # since it was last asked
        self._cancels = dict.fromkeys(self._opened, queues.retries_cancelled)

    def take(self, queue: int, units: NDArray[np.void], behind: Container[int] = ()) -> NDArray[np.bool_]:
        """Return which of the units (dtype feed.WAITING, with lanes) may go out now, and take their lanes.

        Args:
            behind: lanes of which an earlier message is still parked.
        """
        columns = (units[name].tolist() for name in ("lane", "offset", "hour", "global_index"))
        admitted = np.ones(len(units), dtype=np.bool_)
        for position, (lane, offset, hour, index) in enumerate(zip(*columns, strict=True)):
            if lane and not self._closed(lane, queue, (hour, index), behind):
                self._take(lane, (queue, offset))
            elif lane:
                admitted[position] = False
        return admitted

    def claim(self, queue: int, offsets: NDArray[np.uint64], lanes: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """A consumer has these in flight already: return which may be so, their lanes taken by no other."""
        claimed = np.ones(len(offsets), dtype=np.bool_)
        for position, (offset, lane) in enumerate(zip(offsets.tolist(), lanes.tolist(), strict=True)):
            if lane and self._taken.get(lane, (queue, offset)) == (queue, offset):
                self._take(lane, (queue, offset))
            elif lane:
                claimed[position] = False
        return claimed

    def leave(self, queue: int, offsets: Iterable[int]) -> bool:
        """These are settled, or wait again: return whether that opens a lane."""
        if not self._lane_at:
            return False
        left = [self._lane_at.pop((queue, offset), 0) for offset in offsets]
        opened = [lane for lane in left if lane]
        for lane in opened:
            del self._taken[lane]
        self.open(opened)
        return bool(opened)

    def hold(self, queue: int, offsets: NDArray[np.uint64], lanes: NDArray[np.uint32]) -> None:
        """Close the lanes of what may be in flight; once for each offset."""
        ordered = np.flatnonzero(lanes)
        listed = lanes[ordered].tolist()
        self._held_at[queue].update(zip(offsets[ordered].tolist(), listed, strict=True))
        self._held.update(listed)

    def end_hold(self, queue: int, offsets: Iterable[int]) -> None:
        """It is known of these whether they are in flight."""
        if not self._held:
            return
        held_at = self._held_at[queue]
        known = [held_at.pop(offset, 0) for offset in offsets]
        ended = []
        for lane in filter(None, known):
            self._held[lane] -= 1
            if not self._held[lane]:
                del self._held[lane]
                ended.append(lane)
        self.open(ended)

    def take_opened(self, queue: int, parked: KeysView[int]) -> Collection[int]:
        """Return which lanes of parked messages may be open again for the queue since the last call."""
        opened = self._opened[queue]
        if opened:
            self._opened[queue] = set()
        if self._cancels[queue] != self._queues.retries_cancelled:  # whose, nobody knows: look at all
            self._cancels[queue] = self._queues.retries_cancelled
            return parked
        return opened & parked

    def _closed(self, lane: int, queue: int, message: tuple[int, int], behind: Container[int]) -> bool:
        retry = self._queues.blocked.retry(self._retry_queue, lane)
        if queue == self._retry_queue and retry == message:
            return lane in self._taken
        return retry is not None or lane in self._taken or lane in self._held or lane in behind

    def _take(self, lane: int, place: Place) -> None:
        self._taken[lane] = place
        self._lane_at[place] = lane

    def open(self, lanes: Iterable[int]) -> None:
        """Let the first parked message of each of these lanes be tried again."""
        lanes = list(lanes)
        for opened in self._opened.values():
            opened.update(lanes)


ParkedUnit: TypeAlias = tuple[int, int, int]
"""Due time, offset, maybe_duplicate."""


class Parked:
    """By lane, in the order of due times and offsets."""

    def __init__(self) -> None:
        self.count = 0
        self._lanes: dict[int, list[ParkedUnit]] = {}  # each a heap

    def lanes(self) -> KeysView[int]:
        """Return the lanes that have any."""
        return self._lanes.keys()

    def put(self, units: NDArray[np.void]) -> None:
        """Set units aside (dtype feed.WAITING)."""
        columns = (units[name].tolist() for name in ("lane", "due_ms", "offset", "maybe_duplicate"))
        for lane, due_ms, offset, maybe_duplicate in zip(*columns, strict=True):
            heapq.heappush(self._lanes.setdefault(lane, []), (due_ms, offset, maybe_duplicate))
        self.count += len(units)

    def take_first(self, lanes: Iterable[int]) -> list[ParkedUnit]:
        """Take out the first of each of these lanes that has any."""
        first = []
        for lane in lanes:
            if parked := self._lanes.get(lane):
                first.append(heapq.heappop(parked))
                if not parked:
                    del self._lanes[lane]
        self.count -= len(first)
        return first

    def forget(self, offsets: Collection[int], lanes: Collection[int]) -> None:
        """Take out what has these offsets, and one of these lanes."""
        for lane in self._lanes.keys() & lanes:
            parked = self._lanes[lane]
            left = [one for one in parked if one[1] not in offsets]
            self.count -= len(parked) - len(left)
            heapq.heapify(left)
            self._lanes[lane] = left
            if not left:
                del self._lanes[lane]
