"""The rows of a key index anew, from the records of all hours, at a low rate.

    for each hour, in one turn: its units so far ──► a thread reads the partition's, this loop those far off

What is scheduled after an hour's turn is told as it is applied, so nothing is missing. Rows are given by some
65,536, wherever they come from.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from functools import partial
from typing import Final

import numpy as np

from tarry.node.keys.gathered import RUN_ROWS
from tarry.node.repair.records import Damage
from tarry.proto.files import PAGE_BYTES
from tarry.replication.blocking import RunBlocking
from tarry.replication.state_machine.keys import UNREAD, of_records, of_topic
from tarry.replication.state_machine.lanes import queue_of
from tarry.replication.state_machine.machine import Machine
from tarry.wheel.columns import portions
from tarry.wheel.keys.run import ROW, words_of
from tarry.wheel.scrub import StoredRecords
from tarry.wheel.state import Numbers, Rows, UnknownMessage, WheelDamaged

FAR_RECORDS: Final = 256
"""Of the far log, read in one turn of the event loop."""
FAR_BYTES: Final = 256 << 10
"""Their bytes together; a larger record is read alone."""
FAR_RECORD_BYTES: Final = PAGE_BYTES
"""Each counts as so many more for the rate: an hour's lie apart, so each is read with a page of its own."""
PAUSE_S: Final = 10.0
"""Before hours are tried again whose index is damaged, and may be mended meanwhile."""


class StateReplaced(Exception):
    """Another state has arrived while the hours of the one before were read."""


class Rebuild:
    """Reads all hours of a machine's state once."""

    def __init__(self, machine: Machine, damage: Damage, bytes_per_s: int, run_blocking: RunBlocking) -> None:
        self._machine, self._damage = machine, damage
        self._wheel = machine.wheel
        self._bytes_per_s = bytes_per_s
        self._run_blocking = run_blocking
        self._ended = threading.Event()
        self._hours = list(machine.wheel.hours())
        self._all = len(self._hours)
        self._tail, self._tail_rows = list[Rows](), 0
        self._whole = True  # the hour read last could be read

    @property
    def progress(self) -> str:
        """Number of hours that are read, for people."""
        return f"{self._all - len(self._hours):,} of {self._all:,} hours are read"

    async def rows(self) -> AsyncGenerator[list[Rows], None]:
        """Yield the rows of all messages with keys, some 65,536 at a time. Raises StateReplaced."""
        try:
            while self._hours:
                left = []
                while self._hours:
                    hour = self._hours[-1]
                    async for rows in self._of(hour):
                        yield rows
                    if not self._whole:
                        left.append(hour)
                    self._hours.pop()
                    await asyncio.sleep(0)
                    self._check()
                self._hours = left
                if left:
                    await asyncio.sleep(PAUSE_S)
            if self._tail:
                yield self._tail
        finally:
            self._ended.set()  # or the thread would read on

    def _check(self) -> None:
        if self._machine.wheel is not self._wheel:
            raise StateReplaced

    async def _of(self, hour: int) -> AsyncIterator[list[Rows]]:
        """Yield rows of an hour; then `_whole` is whether it could be read."""
        self._check()
        wheel, self._whole = self._wheel, True
        units, state = wheel.units_in_hour(hour), wheel.upkeep.hour_state(hour)
        far = state.units if state is not None else 0
        if state is not None:
            parts = wheel.upkeep.read_hour(state)
            try:
                while rows := await self._run_blocking(partial(self._read, hour, parts)):
                    if run := self._gathered(rows):
                        yield run
            except (OSError, WheelDamaged) as error:
                self._check()
                now = wheel.upkeep.hour_state(hour)
                self._whole = now is None  # dropped meanwhile
                if now is not None and now.index_crc == state.index_crc:  # else it has grown or been thinned
                    self._damage.indices.report(hour, str(error))
        for start in range(far, units, FAR_RECORDS):
            index = np.arange(start, min(units, start + FAR_RECORDS), dtype=np.uint32)
            if run := self._gathered(await self._far(hour, index)):
                yield run

    def _gathered(self, rows: list[Rows]) -> list[Rows]:
        """Add rows to those that are not yielded yet; return all where they are worth a run."""
        self._tail += [some for some in rows if len(some)]
        self._tail_rows += sum(map(len, rows))
        if self._tail_rows < RUN_ROWS:
            return []
        run, self._tail, self._tail_rows = self._tail, [], 0
        return run

    async def _far(self, hour: int, index: Numbers) -> list[Rows]:
        """Return the rows of messages of the far log, wherever they have moved meanwhile."""
        wheel, found, left = self._wheel, list[Rows](), index
        while len(left):
            self._check()
            left = left[wheel.known(np.full(len(left), hour, np.uint32), left)]
            left = left[wheel.readable(np.full(len(left), hour, np.uint32), left)]
            index, units = left, wheel.units(np.full(len(left), hour, np.uint32), left)
            for some in portions(units["size"], FAR_BYTES):
                hours = np.full(len(index[some]), hour, np.uint32)
                try:
                    read = await self._damage.reads.read(hours, index[some])
                except UnknownMessage:  # some were deleted meanwhile, or thinned: look at the others again
                    await asyncio.sleep(0)
                    break
                found.append(rows_of(hour, StoredRecords(index[some], units[some], read)))
                size = int(units["size"][some].sum(dtype=np.int64)) + FAR_RECORD_BYTES * len(hours)
                await asyncio.sleep(size / self._bytes_per_s)
                self._check()
                left = index[some.stop :]
        return found

    def _read(self, hour: int, parts: Iterator[StoredRecords]) -> list[Rows]:
        """Return rows of an hour, read no faster than the settings allow; none: it is read. For a thread."""
        rows: list[Rows] = []
        for part in parts:
            rows.append(rows_of(hour, part))
            size = int(part.units["size"].sum(dtype=np.int64))
            if self._ended.wait(size / self._bytes_per_s):
                break
            if sum(map(len, rows)) >= RUN_ROWS:
                break
        return rows


def rows_of(hour: int, part: StoredRecords) -> Rows:
    """Return the rows of records of an hour; one for each whose record is damaged, which may have any key."""
    keys = of_records([record or b"" for record in part.records])
    damaged = np.flatnonzero([record is None for record in part.records])
    at = np.concatenate((keys.message.astype(np.intp), damaged))
    rows = np.empty(len(at), ROW)
    hashes = of_topic(keys.key_hash, queue_of(part.units["topic"])[keys.message])
    rows["hash"] = np.concatenate((hashes, np.full(len(damaged), UNREAD, np.uint64)))
    rows["place"] = words_of(np.full(len(at), hour, np.uint32), part.global_index[at])
    return rows
