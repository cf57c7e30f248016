"""Ready queues of this replica whose units do not match their checksums: mended from a peer.

Replicas that applied the same entries have the same units, so a peer's are taken if, and only if, they have
the checksum that ours had. Where no peer has them, the replica must take a whole state (see rejoining).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import numpy as np
import structlog
from numpy.typing import NDArray

from tarry.node.repair.pauses import Pauses, PeerAddresses
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.queue_checksums import Stretch
from tarry.replication.state_machine.queues import Queues
from tarry.replication.state_machine.ready_queue import UnitsDamaged

log = structlog.get_logger()

REJOIN: Final = "if no peer has it whole: start the node with --rejoin"

FetchReady: TypeAlias = Callable[[str, int, int, int], Awaitable[bytes]]
"""Asks the peer at an address for so many units of a queue, from an offset on; empty: it has them not."""


class QueueDamage:
    """The stretches of queues known to be damaged here. ``run`` mends them."""

    def __init__(self, machine: Machine) -> None:
        self.found = 0
        self.repaired = 0
        self.missed = 0  # times that no peer had what was wanted
        self._left: dict[tuple[int, int], Stretch] = {}  # by queue and first offset
        self._unproven: set[tuple[int, int]] = set()  # queue and offset
        self._queues: Queues | None = None  # that they are of: another state may take its place
        self._machine = machine
        self._pauses = Pauses()
        self._moved = asyncio.Event()

    @property
    def left(self) -> int:
        """Number of stretches, and of units without a checksum, known to be damaged now."""
        return len(self._left) + len(self._unproven)

    def report(self, damage: UnitsDamaged) -> None:
        """Have damaged units of the machine's queues mended as soon as possible."""
        if self._queues is not self._machine.queues:
            self._queues = self._machine.queues
            self._left.clear()
            self._unproven.clear()
            self._wake()
        for stretch in damage.stretches:
            if (damage.queue, stretch.first) not in self._left:
                self.found += 1
                self._left[damage.queue, stretch.first] = stretch
        self._pauses.end()  # also for what is known: somebody needs it now
        log.error("ready queue damaged", error=str(damage))

    def report_unproven(self, queue: int, offsets: NDArray[np.uint64]) -> None:
        """Count units without a checksum that differ from the delay index, which has one."""
        fresh = {(queue, offset) for offset in offsets.tolist()} - self._unproven
        if fresh:
            self.found += len(fresh)
            self._unproven |= fresh
            log.error("ready queue left damaged", queue=queue, offsets=offsets.tolist()[:100], help=REJOIN)

    async def mended(self, queue: int) -> None:
        """Wait until nothing of a queue is known to be damaged any more."""
        while any(number == queue for number, _ in self._left):
            await self._moved.wait()

    async def run(self, peers: PeerAddresses, fetch: FetchReady) -> None:
        """Mend until cancelled, from ``peers``."""
        while True:
            repaired = self.repaired
            self._pauses.begin()
            for key in sorted(self._left):
                await self._mend(key, list(peers()), fetch)
            await self._pauses.rest(peers, left=bool(self._left), mended=self.repaired > repaired)

    async def _mend(self, key: tuple[int, int], peers: list[str], fetch: FetchReady) -> None:
        number, first = key
        for peer in [None, *peers]:  # it may be mended, trimmed or deleted already
            stretch = self._left.get(key)
            if stretch is None:
                return
            units = b"" if peer is None else await fetch(peer, number, first, stretch.end - first)
            if self._queues is not self._machine.queues:
                self._settle(key)  # the scrub looks at the other state
                return
            queue = self._machine.queues[number]
            try:
                mended = queue.is_damaged(stretch) and queue.mend(stretch, units)
                if queue.is_damaged(stretch):
                    continue
            except OSError as error:
                log.error("ready queue not writable", queue=number, first=first, error=str(error))
                continue
            self._settle(key)
            if mended:
                self.repaired += 1
                log.info("ready queue repaired", peer=peer, queue=number, first=first, end=stretch.end)
            return
        self.missed += 1
        log.error("ready queue left damaged", queue=number, first=first, help=REJOIN)

    def _settle(self, key: tuple[int, int]) -> None:
        self._left.pop(key, None)
        self._wake()

    def _wake(self) -> None:
        self._moved.set()  # whoever waits now wakes; whoever comes waits for the next
        self._moved = asyncio.Event()
