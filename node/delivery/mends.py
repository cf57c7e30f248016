"""Mends that a group waits for: damaged units of its queues, indices that differ from them, and records.

What is damaged is taken from a peer. The group goes on with the rest meanwhile, but nothing passes damaged
units of a queue, for nobody knows what they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tarry.node.delivery import batch
from tarry.node.delivery.feed import Feed
from tarry.replication.state_machine.ready_queue import UnitsDamaged

if TYPE_CHECKING:
    from tarry.node.delivery.context import Context


class Mends:
    """Mends of one group."""

    def __init__(self, context: Context, pump: Callable[[], None]) -> None:
        """Take ``pump``, called once something is mended."""
        self._context = context
        self._pump = pump
        self._stopped: set[Feed] = set()  # at damaged units

    def look(self, feed: Feed) -> None:
        """Have the damaged units mended that the feed has met, if it has."""
        if feed.damage is not None and feed not in self._stopped:
            self._stopped.add(feed)
            self._context.spawn(self._go_on_mended(feed, feed.damage))

    async def _go_on_mended(self, feed: Feed, damage: UnitsDamaged) -> None:
        """Have damaged units of a queue mended, and go on with what lies behind."""
        queues = self._context.damage.queues
        queues.report(damage)
        await queues.mended(damage.queue)
        feed.damage = None
        self._stopped.discard(feed)
        self._pump()

    def deliver_proven(self, feed: Feed, units: NDArray[np.void]) -> None:
        """Have the indices mended that differ from the queue; a unit that still does is never delivered."""
        feed.note_mending(units)
        self._context.spawn(self._deliver_proven(feed, units))

    async def _deliver_proven(self, feed: Feed, units: NDArray[np.void]) -> None:
        damage, machine = self._context.damage, self._context.machine
        for hour in np.unique(units["hour"]).tolist():
            damage.indices.report(hour, f"it differs from the ready queue of {feed.queue.topic!r}")
            await damage.indices.mended(hour)
        trimmed = units["offset"] < np.uint64(feed.queue.first)
        feed.put_back(units[trimmed])  # which leaves their lanes: their hours may be gone
        units = units[~trimmed]
        own = batch.belongs(machine.queues, feed.queue, units, batch.index_of(machine.wheel, units))
        feed.put_back(units[own])
        damage.queues.report_unproven(feed.queue.queue, units["offset"][~own])
        self._pump()

    def deliver_mended(self, feed: Feed, damaged: NDArray[np.void]) -> None:
        """Have damaged records mended; each waits in its feed again as soon as it is."""
        feed.note_mending(damaged)
        self._context.spawn(self._deliver_mended(feed, damaged))

    async def _deliver_mended(self, feed: Feed, damaged: NDArray[np.void]) -> None:
        damage = self._context.damage
        damage.report(damaged["hour"], damaged["global_index"])
        while len(damaged):
            mended = await damage.mended(damaged["hour"], damaged["global_index"])
            feed.put_back(damaged[mended])
            damaged = damaged[~mended]
            self._pump()
