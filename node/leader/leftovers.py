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
from tarry.node.leader.pending_pages import Place, next_page
from tarry.node.repair.records import Damage
from tarry.proto import tarry_producer_pb2 as pb
from tarry.replication.errors import Overloaded
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.columns import portions
from tarry.wheel.state import WheelDamaged

log = structlog.get_logger()

CHECK_S: Final = 1.0

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
                cancelled = await self._pass()
                log.info("left of deleted topics and groups", cancelled=cancelled)
            except WheelDamaged as damage:
                self._damage.indices.report_path(damage)
            except Overloaded:
                continue

    async def _pass(self) -> int:
        """Walk once through all hours with pending messages; return how many were cancelled."""
        at, cancelled = Place(0, 0), 0
        while True:
            async with self._turn.taken():
                found = next_page(self._machine.wheel, deleted_with_pending(self._machine), at)
                if found is None:
                    return cancelled
                self._turn.rest(found.spent_ns)
            at, hours = found.next, np.full(len(found.ids[0]), found.hour, np.uint32)
            for rows in portions(self._pending.costs_ns(hours, found.page.global_index), CANCEL_NS_MAX):
                async with self._turn.taken():
                    cancelled += await self._cancel(*(column[rows] for column in found.ids))
                    self._turn.rest(CANCEL_NS_MAX)

    async def _cancel(self, hour: Numbers, index: Numbers) -> int:
        outcomes = np.zeros(len(hour), np.uint32)
        refusal = await self._pending.cancel(hour, index, outcomes, _all, released=True)
        if isinstance(refusal, Refusal):  # the next pass finds them again
            log.error("left of deleted topics and groups, not cancelled", error=refusal.text)
        return int(np.count_nonzero(outcomes == pb.CANCEL_OUTCOME_CANCELLED))


def _all(hour: Numbers, index: Numbers) -> NDArray[np.bool_]:
    return np.ones(len(hour), np.bool_)
