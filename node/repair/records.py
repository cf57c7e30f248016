"""Records of this replica that do not match their checksums: known, mended from a peer, counted.

    delivery, Get, scrub ── report ──► left ──► each connected peer in turn ──► mended
                                          ▲                 │ none has it
                                          └── wait longer ──┘

The crc32c in the index unit decides what a record is; a peer's word alone does not.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeAlias

import numpy as np
import structlog
from numpy.typing import NDArray
from pyroaring import BitMap

from tarry.node.repair.far_segments import FarDamage
from tarry.node.repair.indices import IndexDamage
from tarry.node.repair.pauses import Pauses, PeerAddresses
from tarry.node.repair.queues import QueueDamage
from tarry.node.repair.record_reads import RecordReads
from tarry.proto.message_id import format_ids
from tarry.replication.blocking import RunBlocking, in_thread
from tarry.replication.snapshot.state_damage import StateDamage
from tarry.replication.state_machine.machine import Machine
from tarry.wheel.columns import groups, portions
from tarry.wheel.state import UnknownMessage, WheelDamaged

log = structlog.get_logger()

ASKED_RECORDS_MAX: Final = 256
"""Records that one call asks a peer for."""
ASKED_BYTES_MAX: Final = 1 << 20
"""Their bytes together; a larger record is asked for alone."""
READ_S: Final = 2.0
"""Time for which a caller waits for damaged records to be mended."""
IDS_LOGGED_MAX: Final = 100

Numbers: TypeAlias = NDArray[np.uint32]
Fetch: TypeAlias = Callable[[str, int, Numbers], Awaitable[Mapping[int, bytes]]]
"""Asks the peer at an address for records of an hour; returns what it gave, by global index."""


class Damage:
    """Damage known on this node. ``run`` mends it."""

    def __init__(
        self,
        machine: Machine,
        shard: int,
        run_blocking: RunBlocking = in_thread,
        reads: RecordReads | None = None,
    ) -> None:
        """Take ``reads``; None: such as wait for the disk."""
        self.reads = reads or RecordReads(machine)
        self._found = 0
        self._repaired = 0
        self._machine = machine
        self._shard = shard
        self._left: dict[int, BitMap] = {}
        self._wanted: dict[int, BitMap] = {}  # of what is left, what is to be tried next
        self.indices = IndexDamage(machine, run_blocking)
        self.far = FarDamage(machine, run_blocking)
        self.queues = QueueDamage(machine)
        self._pauses = Pauses()
        self._moved = asyncio.Event()

    @property
    def found(self) -> int:
        """Count of all damage ever found."""
        return self._found + self.indices.found + self.far.found + self.queues.found

    @property
    def repaired(self) -> int:
        """Count of damage that was mended."""
        return self._repaired + self.indices.repaired + self.far.repaired + self.queues.repaired

    @property
    def left(self) -> int:
        """Records known to be damaged now; an index counts as one, as do a segment of the far log whose units
        are, and a block of a ready queue.
        """
        indices = len(self.indices.left) + self.far.left
        return sum(map(len, self._left.values())) + indices + self.queues.left

    def report(self, hour: Numbers, global_index: Numbers) -> None:
        """Have records, shape (n,), that could not be read whole mended as soon as possible."""
        for at, rows in groups(hour):
            fresh = BitMap(global_index[rows].tolist()) - self._left.get(at, BitMap())
            if not fresh:
                continue
            self._found += len(fresh)
            self._left.setdefault(at, BitMap()).update(fresh)
            self._wanted.setdefault(at, BitMap()).update(fresh)
            log.error("record damaged", count=len(fresh), ids=self._ids(at, fresh))
            self._pauses.end()

    def report_state(self, damage: StateDamage) -> None:
        """Note damage that kept this replica from giving a snapshot."""
        for hour in damage.hours:
            self.indices.report(hour, "as a snapshot found")
        for segment in damage.segments:
            self.far.report(segment, "as a snapshot found")
        for queue in damage.queues:
            self.queues.report(queue)

    async def mended(self, hour: Numbers, global_index: Numbers) -> NDArray[np.bool_]:
        """Wait until something of what was reported, shape (n,), is damaged no more; return which.

        What went with its hour is among it, for nothing is left to wait for.
        """
        while True:
            left = np.zeros(len(hour), dtype=np.bool_)
            for at, rows in groups(hour):
                known = self._left.get(at, BitMap())
                left[rows] = list(map(known.__contains__, global_index[rows].tolist()))
            if not left.all():
                return ~left
            await self._moved.wait()

    async def read(self, hour: Numbers, global_index: Numbers) -> list[bytes | None]:
        """Return records, shape (n,), for which a caller waits; None where one was not mended in time.

        Raises UnknownMessage, also where an hour was deleted meanwhile.
        """
        records = await self.reads.read(hour, global_index)
        if None not in records:
            return records
        damaged = np.array([record is None for record in records], dtype=np.bool_)
        hours, numbers = hour[damaged], global_index[damaged]
        self.report(hours, numbers)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READ_S):
                while len(hours):
                    mended = await self.mended(hours, numbers)
                    hours, numbers = hours[~mended], numbers[~mended]
        return self._machine.wheel.read(hour, global_index)

    async def run(self, peers: PeerAddresses, fetch: Fetch) -> None:
        """Mend until cancelled, from ``peers``."""
        while True:
            repaired = self._repaired
            wanted, self._wanted = self._wanted, {}
            self._pauses.begin()
            for hour, numbers in sorted(wanted.items()):
                await self._mend(hour, np.array(numbers.to_array(), dtype=np.uint32), peers, fetch)
            mended = self._repaired > repaired
            if not await self._pauses.rest(peers, left=bool(self._left), mended=mended):
                self._wanted = {hour: numbers.copy() for hour, numbers in self._left.items()}

    async def _mend(self, hour: int, numbers: Numbers, peers: PeerAddresses, fetch: Fetch) -> None:
        for start in range(0, len(numbers), ASKED_RECORDS_MAX):
            some = numbers[start : start + ASKED_RECORDS_MAX]
            try:
                sizes = self._machine.wheel.units(np.full(len(some), hour, dtype=np.uint32), some)["size"]
                for rows in portions(sizes, ASKED_BYTES_MAX):
                    await self._mend_portion(hour, some[rows], peers, fetch)
            except UnknownMessage:
                self._settle(hour, self._left.get(hour, BitMap()))  # deleted: nothing is to be mended
                return
            except (WheelDamaged, OSError) as error:
                self.indices.report(hour, str(error))
                return
            await asyncio.sleep(0)

    async def _mend_portion(self, hour: int, numbers: Numbers, peers: PeerAddresses, fetch: Fetch) -> None:
        damaged = self._damaged(hour, numbers)
        self._settle(hour, np.setdiff1d(numbers, damaged).tolist())  # another state has arrived, say
        for peer in peers():
            if not len(damaged):
                return
            given = await fetch(peer, hour, damaged)
            mended = [number for number in damaged.tolist() if number in given]
            mended = [number for number in mended if self._repair(hour, number, given[number])]
            if mended:
                self._repaired += len(mended)
                self._settle(hour, mended)
                log.info("record repaired", peer=peer, count=len(mended), ids=self._ids(hour, mended))
            damaged = np.setdiff1d(damaged, np.array(mended, dtype=np.uint32))
        if len(damaged):
            log.error("record left damaged", count=len(damaged), ids=self._ids(hour, damaged.tolist()))

    def _damaged(self, hour: int, numbers: Numbers) -> Numbers:
        records = self._machine.wheel.read(np.full(len(numbers), hour, dtype=np.uint32), numbers)
        return numbers[np.array([record is None for record in records], dtype=np.bool_)]

    def _repair(self, hour: int, number: int, record: bytes) -> bool:
        """Write the record again; False where it is another's, or the disk does not take it."""
        try:
            written = self._machine.wheel.repair(hour, number, record)
        except OSError as error:
            log.error("record not writable", ids=self._ids(hour, (number,)), error=str(error))
            return False
        return written and not len(self._damaged(hour, np.array([number], dtype=np.uint32)))

    def _settle(self, hour: int, numbers: Iterable[int]) -> None:
        left = self._left.get(hour)
        gone = BitMap(numbers)
        if left is None or not gone:
            return
        left -= gone
        if left:
            self._left[hour] = left
        else:
            del self._left[hour]
        self._moved.set()  # whoever waits now wakes; whoever comes waits for the next
        self._moved = asyncio.Event()

    def _ids(self, hour: int, numbers: Iterable[int]) -> list[str]:
        some = list(numbers)[:IDS_LOGGED_MAX]
        places = np.full(len(some), hour, np.uint32), np.array(some, np.uint32)
        return format_ids(self._shard, *self._machine.wheel.ids_of(*places))
