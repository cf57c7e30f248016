"""Reads that do not hold up the event loop: what is on disk only is read ahead in a thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from tarry.replication.blocking import RunBlocking, in_thread
from tarry.replication.state_machine.machine import Machine
from tarry.wheel.cached_reads import NotCached, Pread, read_ahead
from tarry.wheel.columns import portions

AHEAD_MAX: Final = 1_024
"""Messages of which records are read ahead at once: some 1 ms on the event loop to find their places."""
AHEAD_BYTES_MAX: Final = 8 << 20
"""Of these records, unless the first is larger."""

Numbers: TypeAlias = NDArray[np.uint32]
Read: TypeAlias = Callable[[Numbers, Numbers], list[bytes | None]]
"""As Wheel.read: hours and global indices, shape (n,)."""


PLACES_MAX: Final = 64
"""Read ahead for one piece of work; a search of a queue looks at fewer, and beyond it waits for the disk."""

R = TypeVar("R")


class Patiently(Protocol):
    """Does work, as often as it takes, until all that it reads is in memory."""

    async def __call__(self, work: Callable[[Pread | None], R], /) -> R: ...


async def at_once(work: Callable[[Pread | None], R], /) -> R:
    """Do work that may wait for the disk."""
    return work(None)


class RecordsCold(Exception):
    """Some of these records are on disk only; `RecordReads.ahead` reads them."""

    def __init__(self, hour: Numbers, global_index: Numbers) -> None:
        super().__init__(f"of {len(hour)} records")
        self.hour = hour
        self.global_index = global_index


class RecordReads:
    """Reads of records, and of what else may be on disk only, on one node."""

    def __init__(
        self, machine: Machine, pread: Pread | None = None, run_blocking: RunBlocking = in_thread
    ) -> None:
        """Take ``pread``: cached_reads.pread_cached where the event loop must not wait for the disk."""
        self._machine = machine
        self._pread = pread
        self._run_blocking = run_blocking

    def cached(self, hour: Numbers, global_index: Numbers) -> list[bytes | None]:
        """Return records, shape (n,), as Wheel.read. Raises RecordsCold, UnknownMessage."""
        try:
            return self._machine.wheel.read(hour, global_index, self._pread)
        except NotCached:
            raise RecordsCold(hour, global_index) from None

    async def ahead(self, hour: Numbers, global_index: Numbers) -> None:
        """Have the first of these records, shape (n,), read from the disk. Raises UnknownMessage."""
        hour, global_index = hour[:AHEAD_MAX], global_index[:AHEAD_MAX]
        sizes = self._machine.wheel.units(hour, global_index)["size"]
        first = next(portions(sizes, AHEAD_BYTES_MAX), slice(0, 0))
        places = self._machine.wheel.places(hour[first], global_index[first])
        await self._run_blocking(partial(read_ahead, places))

    async def read(self, hour: Numbers, global_index: Numbers) -> list[bytes | None]:
        """Return records, shape (n,), as Wheel.read. Raises UnknownMessage."""
        try:
            return self.cached(hour, global_index)
        except RecordsCold:
            await self.ahead(hour, global_index)
            return self._machine.wheel.read(hour, global_index)

    async def patiently(self, work: Callable[[Pread | None], R], /) -> R:
        """Return what the work returns; it is given how to read, and begun again once it was read ahead."""
        for _ in range(PLACES_MAX):
            try:
                return work(self._pread)
            except NotCached as cold:
                await self._run_blocking(partial(read_ahead, cold.files))
        return work(None)
