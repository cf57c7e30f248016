"""Search for the offsets of messages in a ready queue, by their ids.

A queue is nearly sorted by due times: but for what overtook a backlog, and what came overdue. So each message
is looked for around the place of its due time, in windows that double, until it is found or all is read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tarry.replication.state_machine.ready_queue import ReadyQueue

STEP_UNITS: Final = 16_384
"""Read in one turn of the event loop: some 2 ms."""
NEAR_UNITS: Final = 1_024
"""Looked at before and behind the place of a due time at first."""
GUESSES: Final = 8
"""Places of due times worked out in one turn: each reads some 20 blocks."""

Keys: TypeAlias = NDArray[np.uint64]
Part: TypeAlias = Callable[[float, Callable[[], None]], Awaitable[None]]
"""Does work in a turn of the event loop of which such a part is left for it."""
NOT_THERE: Final = -1


class OffsetSearch:
    """One search for messages of one queue, up to its end as it is now."""

    def __init__(
        self,
        queue: ReadyQueue,
        floor: int,
        hour: NDArray[np.uint32],
        global_index: NDArray[np.uint32],
        due_ms: NDArray[np.int64],
        units_max: int | None = None,
    ) -> None:
        """Take the messages' ids, distinct, and due times, columns of shape (n,).

        What lies below ``floor`` is only found at the place of its due time: nobody waits for it. Once
        about ``units_max`` have been read, what is not found yet is not there.
        """
        self._units_max = units_max
        self._queue, self._end = queue, queue.units
        self._floor = min(max(floor, queue.first), self._end)
        self._order = np.lexsort((global_index, hour))
        self._keys = keys_of(hour, global_index)[self._order]
        self._due_ms = due_ms[self._order]
        self.found = np.full(len(hour), NOT_THERE, dtype=np.int64)
        """The offset of each message, in the order given; NOT_THERE: it is not there from the floor on."""
        self.ended_early = False
        self._at = np.full(len(hour), NOT_THERE, dtype=np.int64)  # by ascending key

    async def run(self, part: Part) -> None:
        """Search. Raises UnitsDamaged where a block that has to be read is damaged."""
        due = np.argsort(self._due_ms, kind="stable")
        position = 0
        low, high = self._end, self._floor
        while position < len(due):
            begun = position
            guessed: list[int] = []

            def guess(begun: int = begun, guessed: list[int] = guessed) -> None:
                for row in due[begun : begun + GUESSES].tolist():
                    if self._at[row] == NOT_THERE:
                        place = self._place_of(int(self._due_ms[row]))
                        guessed.append(place)
                        self._look(place - NEAR_UNITS, place + NEAR_UNITS)

            await part(min(len(due) - begun, GUESSES) / GUESSES, guess)
            position += GUESSES
            low, high = min([low, *guessed]), max([high, *guessed])
        await self._widen(max(low - NEAR_UNITS, self._floor), high + NEAR_UNITS, part)
        self.found[self._order] = self._at

    async def _widen(self, low: int, high: int, part: Part) -> None:
        """Read what lies between and around the places, ever more of it, as long as something is missing."""
        width = NEAR_UNITS
        read_low = read_high = min(low, self._end)
        while (self._at == NOT_THERE).any() and (read_low > self._floor or read_high < self._end):
            read_high = await self._read(read_high, max(high, read_high) + width, part)
            before = max(self._floor, read_low - width)
            await self._read(before, read_low, part)
            read_low = before
            width *= 2
            if self._units_max is not None and read_high - read_low > self._units_max:
                self.ended_early = True
                return

    async def _read(self, begin: int, end: int, part: Part) -> int:
        end = min(end, self._end)
        for start in range(begin, end, STEP_UNITS):
            stop = min(start + STEP_UNITS, end)
            await part((stop - start) / STEP_UNITS, partial(self._look, start, stop))
            if not (self._at == NOT_THERE).any():
                break
        return max(begin, end)

    def _place_of(self, due_ms: int) -> int:
        """Return about where a message of that due time lies."""
        low, high = self._queue.first, self._end
        while low < high:
            middle = (low + high) // 2
            if int(self._queue.read(middle, 1)["due_ms"][0]) < due_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def _look(self, begin: int, end: int) -> None:
        """Note which of the messages lie between two offsets."""
        begin = max(begin, self._queue.first)
        if self._queue.deleted or begin >= end:
            return
        units = self._queue.read(begin, min(end, self._end) - begin)
        keys = keys_of(units["hour"], units["global_index"])
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        (mine,) = np.nonzero(self._keys[places] == keys)
        self._at[places[mine]] = begin + mine


def keys_of(hour: NDArray[np.uint32], global_index: NDArray[np.uint32]) -> Keys:
    """Return one number for each message, by its id: hour << 32 | global index."""
    return hour.astype(np.uint64) << np.uint64(32) | global_index.astype(np.uint64)
