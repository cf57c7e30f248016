"""Batches of records that are cached; a feed whose next records are not waits while they are read.

pump ── all records are in the page cache ──► a batch
          │ one is not
          └──► the feed delivers nothing ── what is due of it is read ahead ──► pump
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tarry.node.delivery import batch as delivery_batch
from tarry.node.delivery.batch import DeliveryBatch
from tarry.node.delivery.feed import NONE, Feed
from tarry.node.delivery.selection import Selection
from tarry.node.repair.record_reads import AHEAD_RECORDS_MAX, RecordsNotCached

if TYPE_CHECKING:
    from tarry.node.delivery.context import Context


class CachedBatches:
    """Builds the batches of one group."""

    def __init__(self, context: Context, pump: Callable[[], None]) -> None:
        """Take ``pump``, called once records have been read."""
        self._context = context
        self._pump = pump

    def build(
        self, feed: Feed, taken: NDArray[np.void], selection: Selection, wanted: int
    ) -> DeliveryBatch | None:
        """Return the batch of the first ``wanted`` that are selected; the feed takes back the others.

        None: the feed takes back all, and delivers nothing until they have been read.
        """
        read = self._context.damage.reads.cached
        count = feed.count_read(taken)
        if count:  # that batch goes even if it has to wait: short of memory it would be read for ever
            read = self._context.machine.wheel.read
            if count < len(taken):
                feed.refuse(taken[count:])
                taken = taken[:count]
        try:
            select = selection.of(feed.queue.queue)
            batch = delivery_batch.build(self._context.config.shard, feed.queue, taken, read, select)
        except RecordsNotCached:
            feed.refuse(taken)
            feed.awaits_disk = True
            self._context.spawn(self._read_ahead(feed, taken["hour"]))
            return None
        feed.read_ahead = NONE
        if not feed.queue.group:  # copies name their messages
            hour, index = self._context.machine.wheel.ids_of(batch.hour, batch.global_index)
            batch = batch._replace(hour=hour, global_index=index)
        if len(batch.units) > wanted:
            feed.refuse(batch.units[wanted:])
            batch = batch.first(wanted)
        return batch

    async def _read_ahead(self, feed: Feed, hours: NDArray[np.uint32]) -> None:
        """Have what is due of these hours, which are open, read from the disk; then let the feed go on."""
        due = feed.due_of_hours(hours, self._context.time.now_ms(), AHEAD_RECORDS_MAX)
        count = await self._context.damage.reads.ahead(due["hour"], due["global_index"])
        feed.awaits_disk, feed.read_ahead = False, due["offset"][:count]
        self._pump()
