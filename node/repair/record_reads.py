"""Reads that do not hold up the event loop: what is not in the page cache is read ahead in a thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from tarry.replication.blocking import RunBlocking, in_own_thread, in_thread
from tarry.replication.state_machine.machine import Machine
from tarry.wheel.cached_reads import FilePlaces, NotCached, Pread, read_ahead
from tarry.wheel.columns import portions
from tarry.wheel.state import Numbers

AHEAD_RECORDS_MAX: Final = 1_024
"""Records that are read ahead at once: some 1 ms on the event loop to find their places."""
AHEAD_BYTES_MAX: Final = 8 << 20
"""Their bytes together; a larger first record is read alone."""
ATTEMPTS_MAX: Final = 64
"""How often work begins again; a search of a queue needs fewer. Then it waits for the disk."""

R = TypeVar("R")


class RecordsNotCached(Exception):
    """Some of these records are not in the page cache; `RecordReads.ahead` reads them."""

    def __init__(self, hour: Numbers, global_index: Numbers) -> None:
        super().__init__(f"of {len(hour)} records")
        self.hour = hour
        self.global_index = global_index


class RecordReads:
    """Reads of records, and of other files whose older parts may not be cached, on one node."""

    def __init__(
        self,
        machine: Machine,
        pread: Pread | None = None,
        run_blocking: RunBlocking = in_thread,
        run_long: RunBlocking | None = None,
    ) -> None:
        """Take ``pread``: cached_reads.pread_cached where the event loop must not wait for the disk.

        ``run_long``: runs reads of whole files; without, a thread of their own does.
        """
        self._machine = machine
        self._pread = pread
        self._run_blocking = run_blocking
        self._run_long = run_long or in_own_thread("index ahead")

    def cached(self, hour: Numbers, global_index: Numbers) -> list[bytes | None]:
        """Return records, shape (n,), as Wheel.read. Raises RecordsNotCached, UnknownMessage."""
        try:
            return self._machine.wheel.read(hour, global_index, self._pread)
        except NotCached:
            raise RecordsNotCached(hour, global_index) from None

    async def ahead(self, hour: Numbers, global_index: Numbers) -> int:
        """Have the first of these records, shape (n,), read from the disk; return how many.

        Raises UnknownMessage.
        """
        hour, global_index = hour[:AHEAD_RECORDS_MAX], global_index[:AHEAD_RECORDS_MAX]
        sizes = self._machine.wheel.units(hour, global_index)["size"]
        first = next(portions(sizes, AHEAD_BYTES_MAX), slice(0, 0))
        places = self._machine.wheel.places(hour[first], global_index[first])
        await self._run_blocking(partial(read_ahead, places))
        return int(first.stop)

    async def read(self, hour: Numbers, global_index: Numbers) -> list[bytes | None]:
        """Return records, shape (n,), as Wheel.read; beyond the bounds of `ahead` it waits for the disk.

        Raises UnknownMessage.
        """
        try:
            return self.cached(hour, global_index)
        except RecordsNotCached:
            await self.ahead(hour, global_index)
            return self._machine.wheel.read(hour, global_index)

    async def in_advance(self, read: Callable[[], None]) -> None:
        """Have a part of a file read before it is looked at, where the event loop must not wait for the disk.

        Not in the thread of records: what is delivered would wait for files that are read from end to end.
        """
        if self._pread is not None:
            await self._run_long(read)

    async def read_ahead_for(self, work: Callable[[Pread | None], R], /) -> R:
        """Return what the work returns; it is given how to read.

        Where it raises NotCached, what it lacks is read in a thread, and it begins again; where that is of
        no use, as for a bad sector, it waits for the disk.
        """
        lacked: tuple[FilePlaces, ...] = ()
        for _ in range(ATTEMPTS_MAX):
            try:
                return work(self._pread)
            except NotCached as error:
                if error.files == lacked:
                    break
                lacked = error.files
                await self._run_blocking(partial(read_ahead, lacked))
        return work(None)
