"""Hours of this replica whose delay index does not match its checksum: mended from a peer.

Replicas that applied the same entries have the same index, byte for byte, so a peer's is taken if, and only
if, it has the checksum that ours had. Where none has, the replica must take a whole state (see rejoining).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

import structlog

from tarry.node.repair.pauses import Pauses, PeerAddresses
from tarry.replication.blocking import RunBlocking, in_thread
from tarry.replication.state_machine.machine import Machine
from tarry.wheel.hour_partition import hour_of
from tarry.wheel.state import WheelDamaged

log = structlog.get_logger()

FetchIndex: TypeAlias = Callable[[str, int, int], Awaitable[bytes]]
"""Asks the peer at an address for the first so many units of an hour's index; empty: it has not got them."""


class IndexDamage:
    """The hours known to be damaged here. ``run`` mends them."""

    def __init__(self, machine: Machine, run_blocking: RunBlocking = in_thread) -> None:
        self.left: set[int] = set()
        self.found = 0
        self.repaired = 0
        self.missed = 0  # times that no peer had what was wanted
        self._machine = machine
        self._run_blocking = run_blocking
        self._pauses = Pauses()
        self._moved = asyncio.Event()

    def report(self, hour: int, error: str) -> None:
        """Have an hour's damaged index mended as soon as possible."""
        if hour not in self.left:
            self.found += 1
            self.left.add(hour)
            self._pauses.end()
        log.error("index damaged", hour=hour, error=error)

    def report_path(self, damage: WheelDamaged) -> None:
        """Have the index that a file's path names mended. Raises what it was told where it names none."""
        hour = hour_of(Path(str(damage.path)).parent.name)
        if hour is None:
            raise damage
        self.report(hour, str(damage))

    def sound(self, hour: int) -> None:
        """Note that an hour's index is as it should be, or gone."""
        self.left.discard(hour)
        self._moved.set()  # whoever waits now wakes; whoever comes waits for the next
        self._moved = asyncio.Event()

    async def mended(self, hour: int) -> None:
        """Wait until an hour's index is not known to be damaged any more."""
        while hour in self.left:
            await self._moved.wait()

    async def run(self, peers: PeerAddresses, fetch: FetchIndex) -> None:
        """Mend until cancelled, from ``peers``."""
        while True:
            repaired = self.repaired
            self._pauses.begin()
            for hour in sorted(self.left):
                await self._mend(hour, list(peers()), fetch)
            await self._pauses.rest(peers, left=bool(self.left), mended=self.repaired > repaired)

    async def _mend(self, hour: int, peers: list[str], fetch: FetchIndex) -> None:
        wheel = self._machine.wheel
        state = wheel.upkeep.hour_state(hour)
        if state is None:
            self.sound(hour)
            return
        for peer in peers:
            index = await fetch(peer, hour, state.units)
            if self._machine.wheel is not wheel:
                return  # another state has arrived; the scrub looks at it
            try:
                mended = await self._run_blocking(partial(wheel.upkeep.mend_index, state, index))
            except OSError as error:
                log.error("index not writable", hour=hour, error=str(error))
                continue
            if self._machine.wheel is not wheel:
                return
            if mended:
                wheel.reread(hour)
                self.sound(hour)
                self.repaired += 1
                log.info("index repaired", peer=peer, hour=hour, units=state.units)
                return
        self.missed += 1
        log.error(
            "index left damaged", hour=hour, help="if no peer has it whole: start the node with --rejoin"
        )
