"""Bytes on disk of what ready queues hold, summed up by the leader as messages come.

offsets   first ─────── 1,024 ─────── 1,024 ───────► end
sums      0             b1            b1 + b2 …           b3: from an offset on, by interpolation
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tarry.node.repair.record_reads import RecordReads
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.ready_queue import UNIT, ReadyQueue
from tarry.wheel.cached_reads import Pread
from tarry.wheel.delay_log import LENGTH_BYTES, UNIT_BYTES
from tarry.wheel.state import UnknownMessage

STEP_UNITS: Final = 16_384
"""Read in one turn of the event loop: some 2 ms."""
STEP_HOURS: Final = 32
"""Read from in one turn: to open one takes some 0.1 ms."""
STRETCH_UNITS: Final = 1_024
"""Of whose bytes one sum is kept."""
BESIDE_BYTES: Final = LENGTH_BYTES + UNIT_BYTES + UNIT.itemsize
"""That a message has on disk beside its record."""


class Sums:
    """Bytes of a queue's messages from an offset on, known up to another one."""

    def __init__(self, first: int) -> None:
        self._offsets = [first]
        self._bytes = [0]

    @property
    def first(self) -> int:
        """Offset from which the bytes are known."""
        return self._offsets[0]

    @property
    def end(self) -> int:
        """Offset up to which they are."""
        return self._offsets[-1]

    def extend(self, sizes: NDArray[np.int64]) -> None:
        """Add messages of so many bytes, shape (n,), at the end."""
        ends = np.append(np.arange(STRETCH_UNITS, len(sizes), STRETCH_UNITS), len(sizes))
        self._offsets += (self.end + ends).tolist()
        self._bytes += (self._bytes[-1] + np.cumsum(sizes)[ends - 1]).tolist()

    def forget(self, offset: int) -> None:
        """Forget what nobody asks for any more: bytes of offsets below."""
        passed = int(np.searchsorted(self._offsets, offset, "right")) - 1
        if passed > 0:
            del self._offsets[:passed], self._bytes[:passed]

    def from_offset(self, offset: int) -> int:
        """Return the bytes from an offset on; exact at the end of each stretch."""
        before = min(max(bisect_right(self._offsets, offset) - 1, 0), len(self._offsets) - 2)
        if before < 0:  # nothing is known
            return 0
        low, high = self._offsets[before], self._offsets[before + 1]
        passed = min(max(offset - low, 0), high - low)
        size_bytes = self._bytes[before + 1] - self._bytes[before]
        return self._bytes[-1] - self._bytes[before] - round(size_bytes * passed / (high - low))

    def offset_of(self, size_bytes: int) -> int:
        """Return the first offset from which there are at most so many bytes, to its stretch."""
        return int(np.interp(self._bytes[-1] - size_bytes, self._bytes, self._offsets))


class QueueBytes:
    """Sums of all queues of which anything is asked."""

    def __init__(self, machine: Machine, reads: RecordReads | None = None) -> None:
        """Take ``reads``; None: such as wait for the disk."""
        self._machine = machine
        self._reads = reads or RecordReads(machine)
        self._sums: dict[int, Sums] = {}

    def from_offset(self, queue: int, offset: int) -> int:
        """Return the bytes of a queue's messages from an offset on, as far as they have been read."""
        known = self._sums.get(queue)
        return 0 if known is None else known.from_offset(offset)

    def first_within(self, queue: int, size_bytes: int) -> int:
        """Return the first offset from which a queue holds at most so many bytes, to its stretch."""
        known = self._sums.get(queue)
        return 0 if known is None else known.offset_of(size_bytes)

    async def read(self, queue: ReadyQueue, offset: int) -> Sums:
        """Return the sums of a queue from an offset on, up to its end; in turns of their own.

        Raises UnitsDamaged.
        """
        offset = max(offset, queue.first)
        known = self._sums.get(queue.queue)
        if known is None or not known.first <= offset <= known.end:
            known = self._sums[queue.queue] = Sums(offset)
        known.forget(offset)
        while known.end < queue.units and not queue.deleted:
            sizes = await self._reads.read_ahead_for(partial(self._sizes, queue, known.end))
            if known.end < queue.first:  # trimmed meanwhile
                known = self._sums[queue.queue] = Sums(queue.first)
            elif not queue.deleted:
                known.extend(sizes)
            await asyncio.sleep(0)
        return known

    def forget(self, there: set[int]) -> None:
        """Forget all queues but these."""
        for queue in self._sums.keys() - there:
            del self._sums[queue]

    def _sizes(self, queue: ReadyQueue, offset: int, pread: Pread | None) -> NDArray[np.int64]:
        """Return bytes of the next messages, shape (n,), n > 0; of a deleted queue none. Raises NotCached."""
        units = queue.read_kept(offset, min(offset + STEP_UNITS, queue.units), pread)
        hours, where = units["hour"], np.flatnonzero(np.diff(units["hour"]))
        if len(where) >= STEP_HOURS:
            units = units[: where[STEP_HOURS - 1] + 1]
            hours = units["hour"]
        try:
            sizes = self._machine.wheel.units(hours, units["global_index"])["size"]
        except UnknownMessage:  # it lies in an hour that another leader's state lacks: nothing is held by it
            sizes = np.zeros(len(units), np.uint32)
        return sizes.astype(np.int64) + BESIDE_BYTES
