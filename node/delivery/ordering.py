"""Lanes of one group at the leader: what has an ordering key is delivered one after another.

    waiting ──take──► taken: delivered, and its settlement not committed ──leave──► the next
       │ its lane is taken, held, or blocked by a retry
       ▼
    parked, by (due, offset), until the lane is open

That a retry is waited for is in the log (``Queues.blocked``), so that every leader knows it.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Container, Iterable, KeysView
from itertools import repeat
from operator import ne
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tarry.node.delivery.int_table import IntTable
from tarry.replication.state_machine.queues import Queues

Offsets: TypeAlias = NDArray[np.uint64]
LaneColumn: TypeAlias = NDArray[np.uint32]

UNPARKED_PIECE: Final = 2_048
"""Lanes of which one ``load`` lets a parked message wait again: 5 ms where PARKED_MAX wait."""

PARKED_MAX: Final = 65_536
"""Messages set aside because one of their key is under way; from here on the whole feed waits."""


class Lanes:
    """Shared by the feeds of a group, so that a retry and what follows it keep their order."""

    def __init__(self, queues: Queues, queue: int, retry_queue: int) -> None:
        self._queues = queues
        self._retry_queue = retry_queue
        self._taken = IntTable[None]()
        self._lane_at = {queue: IntTable[int](), retry_queue: IntTable[int]()}  # those taken, by offset
        self._held = IntTable[int]()  # how many of the lane an earlier leader may have delivered
        self._held_at = {queue: IntTable[int](), retry_queue: IntTable[int]()}  # their lanes, by offset
        self._opened: dict[int, set[int]] = {queue: set(), retry_queue: set()}  # since it was last asked
        self._cancels = dict.fromkeys(self._opened, queues.retries_cancelled)

    def take(self, queue: int, units: NDArray[np.void], behind: Container[int] = ()) -> NDArray[np.bool_]:
        """Return which units (dtype waiting_messages.WAITING, with lanes) may go out, and take their lanes.

        Args:
            behind: lanes of which an earlier message is still parked.
        """
        lanes: LaneColumn = units["lane"]
        listed = lanes.tolist()
        closed = np.fromiter(map(behind.__contains__, listed), np.bool_, len(listed))
        closed |= self._held.has(lanes)
        blocked = self._queues.blocked
        if blocked.any_of(self._retry_queue):
            retries = [blocked.retry(self._retry_queue, lane) for lane in listed]
            closed |= np.array([retry is not None for retry in retries])
            if queue == self._retry_queue:  # what its lane waits for goes out
                closed &= np.array([*map(ne, retries, units[["hour", "global_index"]].tolist())])
        closed |= self._taken.has(lanes)
        return self._take_first(queue, units["offset"], lanes, ~closed)

    def claim(self, queue: int, offsets: Offsets, lanes: LaneColumn) -> NDArray[np.bool_]:
        """Take the lanes of what a consumer has in flight already; return which no other had taken."""
        own = np.equal(self._lane_at[queue].get(offsets, 0), lanes)
        return own | self._take_first(queue, offsets, lanes, ~own & ~self._taken.has(lanes))

    def _take_first(
        self, queue: int, offsets: Offsets, lanes: LaneColumn, free: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Take each lane that is free for its first message; return which these are, and which have none."""
        taken = np.equal(lanes, 0)
        (found,) = np.nonzero(free & ~taken)
        first = found[np.unique(lanes[found], return_index=True)[1]]
        taken[first] = True
        self._taken.put(lanes[first], repeat(None))
        self._lane_at[queue].put(offsets[first], lanes[first].tolist())
        return taken

    def leave(self, queue: int, offsets: Offsets) -> bool:
        """Free the lanes of what is settled, or waits again; return whether that opens a lane."""
        if not self._lane_at[queue]:
            return False
        left = np.array(self._lane_at[queue].pop(offsets, 0), dtype=np.uint32)
        opened = left[left != 0]
        self._taken.pop(opened, None)
        self.open(opened.tolist())
        return len(opened) > 0

    def hold(self, queue: int, offsets: Offsets, lanes: LaneColumn) -> None:
        """Close the lanes of what may be in flight; once for each offset."""
        (ordered,) = np.nonzero(lanes)
        self._held_at[queue].put(offsets[ordered], lanes[ordered].tolist())
        held, counts = np.unique(lanes[ordered], return_counts=True)
        self._held.put(held, (counts + self._held.get(held, 0)).tolist())

    def end_hold(self, queue: int, offsets: Offsets) -> None:
        """Open lanes that were held for these, of which it is known whether they are in flight."""
        if not self._held:
            return
        known = np.array(self._held_at[queue].pop(offsets, 0), dtype=np.uint32)
        ended, counts = np.unique(known[known != 0], return_counts=True)
        left = self._held.pop(ended, 0) - counts
        self._held.put(ended[left > 0], left[left > 0].tolist())
        self.open(ended[left == 0].tolist())

    def is_taken(self, lane: int) -> bool:
        """Return whether an earlier message of a lane is, or after a failover may be, in flight."""
        one = np.array([lane], dtype=np.uint32)
        return lane != 0 and bool(self._taken.has(one)[0] or self._held.has(one)[0])

    def take_opened(self, queue: int, parked: KeysView[int]) -> Collection[int]:
        """Return which lanes of parked messages may be open again for the queue since the last call."""
        opened = self._opened[queue]
        if opened:
            self._opened[queue] = set()
        if self._cancels[queue] != self._queues.retries_cancelled:  # whose, nobody knows: look at all
            self._cancels[queue] = self._queues.retries_cancelled
            return parked
        return opened & parked

    def open(self, lanes: Collection[int]) -> None:
        """Let the first parked message of each of these lanes be tried again."""
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
        """Set units aside (dtype waiting_messages.WAITING)."""
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

    def find(self, lane: int, offset: int) -> tuple[int, bool] | None:
        """Return how many of its lane go before an offset, and whether it is marked; None: it is not here."""
        parked = self._lanes.get(lane, [])
        for one in parked:
            if one[1] == offset:
                return sum(other < one for other in parked), bool(one[2])
        return None

    def unmarked(self, lanes: Collection[int]) -> list[int]:
        """Return the offsets of these lanes that have not been out before."""
        return [o for lane in self._lanes.keys() & lanes for _, o, marked in self._lanes[lane] if not marked]

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
