"""Flushes of what a replica's journal wrote without a sync, where the cluster's durability is async.

    deferred write ─► half of flush_ms ─► flush, beside the writes ─► … ─► LULL_S without a write ─► no mark

A write after a lull is synced, for the mark would cost as much as its sync. So is one behind a flush that
takes longer than `flush_ms`: what a loss of power takes back stays bounded while a disk is slow.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tarry.replication.journal.records import Batch
from tarry.replication.replica import Replica

LULL_S: Final = 2.0
"""Without a write for so long, a journal loses its mark: a loss of power then costs nothing."""


LATE_MS_MIN: Final = 10
"""The least that `flush_ms` may be."""


class Flushes:
    """Decides which writes of one replica are deferred, and flushes them."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._written_s = float("-inf")
        self._waits_since_s: float | None = None  # the oldest write that is not flushed
        self._marked = replica.journal.is_marked  # by the process before
        self._working: asyncio.Task[None] | None = None
        self._one = asyncio.Lock()  # held by the flush under way

    @property
    def defers(self) -> bool:
        """True if the cluster's durability is async, and this machine would notice a loss of power."""
        return self._replica.flush_ms() > 0 and self._replica.journal.may_defer

    @property
    def due(self) -> bool:
        """True if the durability has become sync, and something is not flushed yet."""
        journal = self._replica.journal
        return not self.defers and journal.flushed_index < journal.durable_index

    @property
    def waits_s(self) -> float:
        """For how long the oldest write has waited for its flush."""
        return 0.0 if self._waits_since_s is None else self._replica.now() - self._waits_since_s

    @property
    def late(self) -> bool:
        """True if something has waited for its flush for longer than it may."""
        return self.waits_s > max(self._replica.flush_ms(), LATE_MS_MIN) / 1000

    def may_defer(self) -> bool:
        """Return whether what is written now may be flushed later."""
        if self.due:
            self._replica.journal.demand_flush()
        return self.defers and not self.late and self._replica.now() - self._written_s < LULL_S

    def wrote(self, batch: Batch) -> None:
        """Note a write that has ended, and that the journal has been told of."""
        self._written_s = self._replica.now()
        if batch.deferred:
            self._marked = True
            if self._waits_since_s is None:
                self._waits_since_s = self._written_s
        else:
            self._waits_since_s = None
        if self._marked and self._working is None:
            self._working = asyncio.ensure_future(self._work())

    async def flush(self) -> None:
        """Return once everything written before the call is flushed. Raises what ends the process."""
        journal = self._replica.journal
        async with self._one:
            began_s = self._replica.now()
            if journal.flushed_index >= journal.durable_index:
                self._waits_since_s = None
                return
            journal.begin_flush()
            await self._replica.run_blocking(journal.flush)
            self._replica.timings.flush.add(self._replica.now() - began_s)
            journal.mark_flushed()
        if self._waits_since_s is not None:
            waits = journal.flushed_index < journal.durable_index
            self._waits_since_s = max(self._waits_since_s, began_s) if waits else None
        if self._replica.flush_awaited:
            self._replica.wake.set()

    async def end(self) -> None:
        """Flush, and leave no mark: the node stops, and writes no more."""
        await self.stop()
        if self._marked:
            await self.flush()
            await self._replica.run_blocking(self._replica.journal.settle)

    async def stop(self) -> None:
        """Let what is under way end, whether it succeeds or not."""
        if self._working is not None:
            self._working.cancel()
            await asyncio.wait([self._working])

    async def _work(self) -> None:
        """Flush for as long as there is something to flush, or a mark to remove."""
        try:
            while self._marked:
                flush_s = self._replica.flush_ms() / 1000
                await asyncio.sleep(min(flush_s, LULL_S) / 2)
                await self.flush()
                if self._replica.now() - self._written_s >= LULL_S or not self.defers:
                    await self._replica.run_blocking(self._replica.journal.settle)
                    self._marked = self._replica.journal.is_marked  # a write beside may have set it again
        except Exception as error:  # noqa: BLE001 as in a turn: the process must end
            self._replica.fail(error)
        finally:
            self._working = None
