"""The key index of a node: takes rows in as entries are applied, writes and merges runs in threads.

    apply ──► gathered ──65,536, or a checkpoint──► run ──► merged, and committed by the manifest
                                   hours ──rebuild──┘

A checkpoint says of which generation the index has all of its messages. Where a start finds an older one, as
after a snapshot, a restore, an older version or damage, the index is built again from the hours; until then
no lookup is answered. Nothing waits for the index and nothing fails with it.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Final

import numpy as np
import structlog

from tarry.node.keys import gathered
from tarry.node.keys.gathered import RUN_ROWS, Gathered
from tarry.node.keys.rebuild import Rebuild, StateReplaced
from tarry.node.repair.records import Damage
from tarry.proto.files import free_bytes
from tarry.replication.blocking import RunBlocking, in_thread
from tarry.replication.state_machine.keys import UNREAD, Unread, read
from tarry.replication.state_machine.machine import Machine
from tarry.wheel.columns import distinct
from tarry.wheel.keys.key_index import KeyIndex, find
from tarry.wheel.keys.run import ROW, ROW_BYTES, IsDropped, KeysDamaged, Run, Words, having
from tarry.wheel.state import Flags, Numbers, Rows, WheelDamaged

log = structlog.get_logger()

GATHERED_MAX: Final = 64 * RUN_ROWS
"""Rows in memory, 64 MiB; with more, which the disk did not take, the index is built again later."""
UNREAD_MAX: Final = 16
"""Commands in memory whose many keys are yet to be read, by a thread; those of more are read at once."""
LOOK_S: Final = 60.0
"""Between two looks whether runs are mostly of dropped hours."""
RETRY_S: Final = 10.0
"""Before the index is built again after the disk refused, or something in it was damaged."""
BEGINS: Final = "it begins soon"
FOLDER: Final = "keys"
"""In the folder of the state that the index is of."""


class KeyKeeper:
    """Keeps the key index of the machine's state; ``run`` and ``run_writes`` are to be run."""

    def __init__(
        self,
        machine: Machine,
        damage: Damage,
        bytes_per_s: int,
        run_blocking: RunBlocking = in_thread,
        look_up: RunBlocking | None = None,
        disk_free_bytes_min: int = 0,
    ) -> None:
        """Take ``bytes_per_s`` that are read of hours; ``look_up`` runs lookups, which somebody waits for.

        Where it would leave less than ``disk_free_bytes_min``, nothing is merged or built.
        """
        self._machine, self._damage, self._bytes_per_s = machine, damage, bytes_per_s
        self._run_blocking, self._look_up = run_blocking, look_up or run_blocking
        self._disk_free_bytes_min = disk_free_bytes_min
        self._changing = asyncio.Lock()  # held by who changes the runs
        self._full, self._changed = asyncio.Event(), asyncio.Event()
        self._rebuild: Rebuild | None = None
        self._begins = BEGINS  # for people
        machine.keyed.wanted = True
        self._begin()

    def _begin(self) -> None:
        """Open the index of the state that the machine has now."""
        machine, self._wheel = self._machine, self._machine.wheel
        folder, needed = machine.folder / FOLDER, machine.keys_generation
        self._forget_gathered()
        try:
            self._index = KeyIndex.open(folder)
            is_empty = machine.applied_index == 0  # the log is replayed from its start
            self.complete = is_empty or 0 < needed <= self._index.generation
        except (OSError, KeysDamaged) as error:
            log.error("key index damaged: it is built again", error=str(error))
            self._index, self.complete = KeyIndex(folder), False
        self._generation = max(needed, self._index.generation)
        """Of the last commit; a later one has a higher one."""
        if not self.complete:
            self._index = KeyIndex(folder, numbers=self._index.numbers)
        self._tell()
        self._changed.set()

    def _forget_gathered(self) -> None:
        self._gathered, self._writing = Gathered(), Gathered()
        self._unread, self._reading = list[Unread](), list[Unread]()

    def _tell(self) -> None:
        """Tell checkpoints which generation will have what has been applied so far."""
        coming = bool(len(self._writing) or self._reading) + bool(len(self._gathered) or self._unread)
        self._machine.keyed.generation = max(1, self._generation + coming) if self.complete else 0

    @property
    def rows(self) -> int:
        """The number of rows, in memory and on disk."""
        return self._index.rows + len(self._gathered) + len(self._writing)

    @property
    def progress(self) -> str:
        """State of an index that is not complete, for people."""
        return self._rebuild.progress if self._rebuild is not None else self._begins

    # -- what happens --------------------------------------------------------------------

    def applied(self) -> None:
        """Take in the keys of an applied entry."""
        if self._machine.wheel is not self._wheel:
            self._begin()
        if rows := self._machine.keyed.take():
            for some in rows:
                if not isinstance(some, Unread):
                    self._gathered.add(some)
                elif len(self._unread) < UNREAD_MAX:
                    self._unread.append(some)
                else:
                    self._gathered.add(np.concatenate(read(some)))
            if len(self._gathered) > GATHERED_MAX:
                self._fail("the disk takes keys more slowly than they come")
            elif len(self._gathered) >= RUN_ROWS or self._unread:
                self._full.set()
            self._tell()

    async def find(self, key_hash: int, first: int, end: int, most: int) -> Words | None:
        """Return the first places from `first` on, before `end`, of messages that may have a key, ascending.

        The hash is of topic and key; None: the index is not complete.
        """

        def look(parts: Sequence[Rows], runs: Sequence[Run]) -> Words:
            hashes = (key_hash, UNREAD)
            found = [gathered.find(parts, one, first, end, most) for one in hashes]
            found += [find(runs, one, first, end, most) for one in hashes]
            return np.unique(np.concatenate(found))[:most]

        return await self._find(look)

    async def find_any(self, key_hashes: Words, first: int) -> Words | None:
        """Return the places from `first` on of messages that may have one of some keys, ascending.

        The hashes are of topic and key. None: the index is not complete.
        """
        hashes = distinct(np.append(key_hashes, np.uint64(UNREAD)))

        def look(parts: Sequence[Rows], runs: Sequence[Run]) -> Words:
            found = [having(part, hashes, first) for part in parts]
            found += [run.find_any(hashes, first) for run in runs]
            return distinct(np.concatenate([np.empty(0, ROW), *found])["place"])

        return await self._find(look)

    async def _find(self, look: Callable[[Sequence[Rows], Sequence[Run]], Words]) -> Words | None:
        """Return what is found in the rows in memory and in the runs; None: the index is not complete."""
        if self._machine.wheel is not self._wheel:
            self._begin()
        if self._unread or self._reading:
            await self.write()
        if not self.complete:
            return None
        index = self._index
        parts = [part for some in (self._gathered, self._writing) for part in some.parts()]
        try:
            found: Words = await self._look_up(partial(look, parts, index.runs))
        except (OSError, KeysDamaged) as error:
            if index is self._index:
                self._fail(str(error))
            return None
        return found

    # -- writing -------------------------------------------------------------------------

    async def run(self) -> None:
        """Build the index where it is not complete, and merge runs, until cancelled."""
        while True:
            self._changed.clear()
            if self._machine.wheel is not self._wheel:
                self._begin()
            if not self.complete:
                if not await self.build():
                    await asyncio.sleep(RETRY_S)
            elif not await self.merge():
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._changed.wait()

    async def run_writes(self) -> None:
        """Write a run whenever enough rows are gathered, until cancelled."""
        while True:
            await self._full.wait()
            self._full.clear()
            await self.write()

    async def write(self) -> None:
        """Write what is gathered; where the index is complete, it is then on disk for good."""
        async with self._changing:
            unnamed = self.complete and self._generation == 0  # the first checkpoint says 1
            if len(self._gathered) or self._unread or unnamed:
                await self._commit(complete=self.complete)

    async def build(self) -> bool:
        """Build the index from the hours; return whether it is complete now."""
        try:
            return await self._build()
        except (OSError, WheelDamaged, StateReplaced) as error:
            log.warning("key index not built yet", error=str(error))
            self._begins = f"{BEGINS} again, for {error}"
            return False
        finally:
            self._rebuild = None

    async def _build(self) -> bool:
        async with self._changing:
            wheel, renewed = self._wheel, await self._run_blocking(self._index.renewed)
            if wheel is not self._wheel:
                return False
            index = self._index = renewed
        await self._run_blocking(self._demand_room)  # which the files of before have given back
        self._rebuild = Rebuild(self._machine, self._damage, self._bytes_per_s, self._run_blocking)
        rows = self._rebuild.rows()
        try:
            async for parts in rows:
                await self._run_blocking(self._demand_room)
                async with self._changing:
                    if index is not self._index or not await self._try(partial(index.add, parts)):
                        return False
                await self.merge()
        finally:
            await rows.aclose()
        async with self._changing:
            if index is self._index and self._machine.wheel is self._wheel:
                await self._commit(complete=True)
        if self.complete:
            log.info("key index built", rows=self.rows)
        return self.complete

    async def _commit(self, *, complete: bool) -> None:
        """Write what is gathered as a run, and where the index is then complete, a manifest."""
        index, generation = self._index, self._generation + 1
        self._writing, self._gathered = self._gathered, Gathered()
        self._reading, self._unread = self._unread, []
        parts, unread = self._writing.parts(), self._reading

        def work() -> None:
            index.add([*parts, *chain.from_iterable(map(read, unread))])
            if complete:
                index.commit(generation)

        done = await self._try(work)
        if index is self._index:
            self._writing, self._reading = Gathered(), []
            if done and complete:
                self._generation, self.complete = generation, True
            self._tell()
            self._changed.set()

    async def merge(self) -> bool:
        """Merge some runs into one, or write one again without dropped hours; False: nothing is due."""
        index, is_dropped = self._index, self._dropped()
        chosen: list[Run] = []
        made: list[Run | None] = []

        def work() -> None:
            some = index.choose(is_dropped)
            if some and self._has_room(sum(run.rows for run in some) * ROW_BYTES):
                chosen.extend(some)
                made.append(index.merge(chosen, is_dropped))

        if not await self._try(work) or not chosen:
            return False
        async with self._changing:
            if index is not self._index:
                return False
            complete, generation = self.complete, self._generation

            def put() -> None:
                index.replace(chosen, made[0])
                if complete:
                    index.commit(generation)
                index.forget(chosen)

            return await self._try(put)

    def _dropped(self) -> IsDropped:
        """Return what flags hours that were dropped."""
        wheel = self._machine.wheel
        floor = wheel.floor_hour
        there = np.array(wheel.hours(floor), np.uint32)

        def is_dropped(hours: Numbers) -> Flags:
            flags: Flags = (hours < floor) & ~np.isin(hours, there)
            return flags

        return is_dropped

    def _has_room(self, size_bytes: int) -> bool:
        """Return whether the disk has room for so much more."""
        return free_bytes(self._machine.folder) - size_bytes >= self._disk_free_bytes_min

    def _demand_room(self) -> None:
        """Raise OSError where the disk has too little room to build the index."""
        if not self._has_room(0):
            raise OSError(errno.ENOSPC, "fewer bytes free than disk_free_bytes_min: make room on the disk")

    async def _try(self, work: Callable[[], object]) -> bool:
        """Do disk work in a thread; False, and the index has to be built again, where that fails.

        Who cancels this waits for the thread: other work on the same files would spoil both.
        """
        index = self._index
        working = asyncio.ensure_future(self._run_blocking(work))
        try:
            await asyncio.shield(working)
        except asyncio.CancelledError:
            await asyncio.wait([working])
            if working.exception() is not None and index is self._index:
                self._fail(str(working.exception()))
            raise
        except (OSError, KeysDamaged) as error:
            if index is self._index:
                self._fail(str(error))
            return False
        return True

    def _fail(self, why: str) -> None:
        """Answer no lookup any more before the index is built again."""
        log.error("key index not usable: it is built again", why=why)
        self.complete = False
        self._forget_gathered()
        self._index = KeyIndex(self._index.folder, numbers=self._index.numbers)
        self._tell()
        self._changed.set()
