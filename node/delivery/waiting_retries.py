"""Search for the copies that wait for their retry, by the messages that they are of.

A copy is pending in the wheel until it is due, and then waits in the group's retry queue. Nothing but its
record says of which message it is, so the group's copies are read: so many, and no more, for one request.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tarry.node.delivery import retries
from tarry.node.delivery.context import Context
from tarry.node.delivery.offset_pieces import cut, part_of
from tarry.replication.state_machine.event_details import origins
from tarry.replication.state_machine.ready_queue import ReadyQueue
from tarry.wheel.state import HOUR_MS
from tarry.wheel.wheel import Wheel

COPIES_MAX: Final = 32_768
"""Read for one request and group, at some 5 us each; those beyond are not found."""
UNITS_MAX: Final = 4 << 20
"""Of the wheel's indices that are looked through for them."""
HOURS_MAX: Final = 1_024
"""Looked through for them, the first that have pending messages: to open one takes some 0.05 ms."""
STEP_UNITS: Final = 65_536
"""Looked through in one turn of the event loop: some 0.5 ms."""
HOUR_PART: Final = 0.1
"""Of a turn, to open an hour."""
STEP_COPIES: Final = 512
"""Read in one turn."""
STEP_BLOCKS: Final = 64

Found = dict[int, tuple[int, int]]
"""By message, hour << 32 | global index: hour and global index of its copy."""


async def find(context: Context, copies: ReadyQueue, group: str, wanted: NDArray[np.uint64]) -> Found:
    """Return the waiting copies of the messages wanted, keys of shape (n,). Raises UnitsDamaged.

    A message that is not in it may still have one: its copy came meanwhile, or there are too many.
    """
    return (await search(context, copies, group, wanted, COPIES_MAX)).found


async def search(
    context: Context, copies: ReadyQueue, group: str, wanted: NDArray[np.uint64], copies_max: int
) -> Search:
    """Return a search for the waiting copies of the messages wanted that has read so many, or found all."""
    search = Search(context, np.sort(wanted), copies_max)
    wheel, looked, queue = context.machine.wheel, 0, np.array([copies.queue], np.uint32)
    for hour in islice(_pending_hours(wheel), HOURS_MAX):
        start = 0
        while start < wheel.units_in_hour(hour):
            pending = wheel.pending_of(copies.queue)
            if search.is_over or search.read >= pending or looked >= UNITS_MAX:
                break
            work = partial(wheel.pending_page, hour, queue, start, STEP_UNITS)
            page = await context.pieces.part(
                HOUR_PART + (wheel.units_in_hour(hour) - start) / STEP_UNITS, work
            )
            looked, start = looked + page.end - start, page.end
            await search.look(np.full(len(page.global_index), hour, np.uint32), page.global_index)
        else:
            continue
        break
    known = context.machine.queues.acknowledged.get((group, copies.queue))
    left = known.missing(known.floor, copies.units) if known is not None else np.empty(0, np.uint64)
    for part in cut(left[:copies_max], STEP_COPIES, STEP_BLOCKS):
        there = part[part >= np.uint64(copies.first)]
        if search.is_over or copies.deleted:
            break
        units = await context.pieces.part(part_of(len(there), STEP_BLOCKS), partial(copies.at, there))
        await search.look(units["hour"].copy(), units["global_index"].copy())
    return search


def _pending_hours(wheel: Wheel) -> Iterator[int]:
    """Yield the hours that have anything pending, each looked up as it is asked for: they may be 100,000."""
    hour = wheel.next_pending_hour(wheel.cut.due_ms // HOUR_MS)
    while hour is not None:
        yield hour
        hour = wheel.next_pending_hour(hour + 1)


class Search:
    """Copies that a search has found, and how many it has read."""

    def __init__(self, context: Context, wanted: NDArray[np.uint64], copies_max: int = COPIES_MAX) -> None:
        self._context, self._wanted, self._copies_max = context, wanted, copies_max
        self.found: Found = {}
        self.read = 0
        self.unreadable = 0
        """Of those read: whose record is damaged or gone, so that of which message they are is not known."""

    @property
    def is_over(self) -> bool:
        """True if all are found, or enough has been read."""
        return len(self.found) == len(self._wanted) or self.read >= self._copies_max

    async def look(self, hour: NDArray[np.uint32], index: NDArray[np.uint32]) -> None:
        """Read of which messages these copies are."""
        while len(hour) and not self.is_over:
            count = min(STEP_COPIES, retries.within_hours(hour))
            work = partial(origins, self._context.machine.wheel, hour[:count], index[:count])
            hours = len(np.unique(hour[:count]))
            of = await self._context.pieces.part(max(count / STEP_COPIES, hours / retries.HOURS_MAX), work)
            keys = of.hour.astype(np.int64) << 32 | of.global_index
            known = np.flatnonzero((of.hour >= 0) & np.isin(keys, self._wanted.astype(np.int64)))
            for place in known.tolist():
                self.found[int(keys[place])] = int(hour[place]), int(index[place])
            self.read += count
            self.unreadable += int(np.sum(of.hour < 0))
            hour, index = hour[count:], index[count:]
