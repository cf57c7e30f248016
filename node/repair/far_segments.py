"""Segments of this replica's far log whose units are damaged: each mends itself, for it has them twice.

What the wheel finds while it reads, it mends at once; what the scrub or a snapshot finds is mended here.
"""

from __future__ import annotations

from functools import partial

import structlog

from tarry.node.repair.pauses import Pauses
from tarry.replication.blocking import RunBlocking, in_thread
from tarry.replication.state_machine.machine import Machine

log = structlog.get_logger()


class FarDamage:
    """The segments known to be damaged here. ``run`` mends them."""

    def __init__(self, machine: Machine, run_blocking: RunBlocking = in_thread) -> None:
        self._found = 0
        self._repaired = 0
        self.missed = 0  # times that a segment had a unit nowhere
        self._machine = machine
        self._left: set[int] = set()
        self._run_blocking = run_blocking
        self._pauses = Pauses()

    @property
    def found(self) -> int:
        """Number ever found damaged."""
        self._note_mended()
        return self._found

    @property
    def repaired(self) -> int:
        """Number of them that were mended."""
        self._note_mended()
        return self._repaired

    @property
    def left(self) -> int:
        """Number known to be damaged now."""
        if self._left:
            self._left &= {segment.number for segment in self._machine.wheel.upkeep.far_segments()}
        return len(self._left)

    def report(self, segment: int, error: str) -> None:
        """Have a segment with damaged units mended as soon as possible."""
        if segment not in self._left:
            self._found += 1
            self._left.add(segment)
            self._pauses.end()
        log.error("far log damaged", segment=segment, error=error)

    def sound(self, segment: int) -> None:
        """Note that a segment's units are as they should be."""
        self._left.discard(segment)

    def _note_mended(self) -> None:
        for segment in self._machine.wheel.upkeep.take_far_mended():
            self._found += 1
            self._repaired += 1
            log.warning("far log repaired", segment=segment, error="as reading it found")

    async def run(self) -> None:
        """Mend until cancelled."""
        while True:
            repaired = self.repaired
            self._pauses.begin()
            for segment in sorted(self._left):
                await self._mend(segment)
            await self._pauses.rest(tuple, left=bool(self._left), mended=self.repaired > repaired)

    async def _mend(self, number: int) -> None:
        wheel = self._machine.wheel
        state = next((segment for segment in wheel.upkeep.far_segments() if segment.number == number), None)
        if state is None:
            self.sound(number)
            return
        try:
            mended = await self._run_blocking(partial(wheel.upkeep.mend_far, state))
        except OSError as error:
            log.error("far log not writable", segment=number, error=str(error))
            mended = False
        if self._machine.wheel is not wheel:
            return  # another state has arrived; the scrub looks at it
        if mended:
            self.sound(number)
            self._repaired += 1
            log.info("far log repaired", segment=number, units=state.units)
        elif self.left:
            self.missed += 1
            log.error("far log left damaged", segment=number, help="start the node with --rejoin")
