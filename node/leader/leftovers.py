"""Pending messages of topics and groups that were deleted: the leader cancels them, a piece at a time.

They go nowhere when they come due; until then they would take up room. That some are left follows from the
state, so a new leader goes on where the one before was.
"""

from __future__ import annotations

import asyncio
from typing import Final

import numpy as np
import structlog
from numpy.typing import NDArray

from tarry.node.leader.bulk_turn import BulkTurn
from tarry.node.leader.pending_cancels import CANCEL_NS_MAX, PendingCancels
from tarry.node.repair.records import Damage
from tarry.replication.errors import Overloaded
from tarry.replication.state_machine.machine import Machine
from tarry.wheel.columns import portions
from tarry.wheel.state import HOUR_MS, WheelDamaged

log = structlog.get_logger()

CHECK_S: Final = 1.0
PAGE_UNITS: Final = 8_192
"""Looked at in one turn of the event loop."""
HOUR_NS: Final = 200_000
UNIT_NS: Final = 50

Numbers = NDArray[np.uint32]


def deleted_with_pending(machine: Machine) -> Numbers:
    """Return the numbers of deleted queues that have pending messages, ascending."""
    some = machine.wheel.topics_with_pending()
    return some[machine.queues.deleted(some)]


def pending_of_live(machine: Machine) -> int:
    """Return the number of pending messages but for those of deleted topics and groups."""
    return machine.wheel.pending - machine.wheel.pending_of_all(deleted_with_pending(machine))


class Leftovers:
    """Cancels what is left, on the leader."""

    def __init__(self, machine: Machine, damage: Damage, pending: PendingCancels, turn: BulkTurn) -> None:
        self._machine, self._damage, self._pending, self._turn = machine, damage, pending, turn

    async def run(self) -> None:
        """Run until cancelled. Raises NotLeader, Unknown: the next leader goes on."""
        while True:
            await asyncio.sleep(CHECK_S)
            if not len(deleted_with_pending(self._machine)):
                continue
            try:
                await self._pass()
            except WheelDamaged as damage:
                self._damage.indices.report_path(damage)
            except Overloaded:
                continue

    async def _pass(self) -> None:
        """Walk once through all hours with pending messages."""
        wheel, cancelled, hour, place = self._machine.wheel, 0, 0, 0
        while True:
            async with self._turn.taken():
                numbers = deleted_with_pending(self._machine)
                found = wheel.next_pending_hour(max(hour, wheel.cut.due_ms // HOUR_MS))
                if found is None or not len(numbers):
                    break
                place = place if found == hour else 0
                page = wheel.pending_page(found, numbers, place, PAGE_UNITS)
                spent_ns = HOUR_NS + UNIT_NS * (page.end - place)
                hour, place = found, page.end
                if place >= wheel.units_in_hour(hour):
                    hour, place = hour + 1, 0
                hours = np.full(len(page.global_index), found, np.uint32)
                for rows in portions(self._pending.costs_ns(hours, page.global_index), CANCEL_NS_MAX):
                    await self._cancel(hours[rows], page.global_index[rows])
                    await self._turn.rest(CANCEL_NS_MAX)
                cancelled += len(hours)
                await self._turn.rest(spent_ns)
        log.info("left of deleted topics and groups", cancelled=cancelled)

    async def _cancel(self, hour: Numbers, index: Numbers) -> None:
        outcomes = np.zeros(len(hour), np.uint32)
        ids = self._machine.wheel.ids_of(hour, index)
        await self._pending.cancel(*ids, outcomes, _all, released=True)


def _all(hour: Numbers, index: Numbers) -> NDArray[np.bool_]:
    return np.ones(len(hour), np.bool_)
