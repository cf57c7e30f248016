"""Thinning, on every node by itself: an hour keeps on disk what ready queues still point to.

An hour goes whole when no queue points into it. Until then a few messages of one topic would keep those of
all others. What no queue points to nobody needs: it was cancelled, or every group has acknowledged it and it
was kept long enough. But the leader looks for idempotency keys among all messages of an hour, so it is whole
while they count. Replicas may differ in what they have thinned out; no answer of the log rests on it.
"""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from functools import partial
from typing import Final

import numpy as np
import structlog
from numpy.typing import NDArray

from tarry.node.config import Dispatch
from tarry.node.defaults import dispatch
from tarry.node.recovery.checkpoints import Checkpoints
from tarry.node.recovery.queue_hours import QueueHours
from tarry.node.repair.records import Damage
from tarry.replication.blocking import RunBlocking, in_thread
from tarry.replication.state_machine import levels
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.ready_queue import QueueDamaged, UnitsDamaged
from tarry.wheel.state import HOUR_MS, WheelDamaged

log = structlog.get_logger()

HOURS: Final = 64
"""Thinned in one look at most; the others follow with the next."""
QUEUES: Final = 500
"""Looked at in one turn of the event loop."""
LOOKED_AT: Final = 100
"""Hours, likewise: to ask for the disk space of one takes some 0.03 ms."""
_LEFT: Final = (errno.ENOENT, errno.ENOSPC, errno.EDQUOT)
"""Errors after which an hour stays as it is: it was dropped meanwhile, or the disk is full."""
GAIN_BYTES_MIN: Final = 16_384
"""Disk space that is worth the work."""


def is_worthwhile(allocated_bytes: int, kept_bytes: int) -> bool:
    """Return whether to thin an hour of so much disk space, of which about so much would be kept."""
    return allocated_bytes - kept_bytes >= max(GAIN_BYTES_MIN, allocated_bytes // 4)


class Thinning:
    """Thins hours that nothing is pending of any more."""

    def __init__(
        self,
        machine: Machine,
        checkpoints: Checkpoints,
        damage: Damage,
        settings: Dispatch,
        run_blocking: RunBlocking = in_thread,
    ) -> None:
        self._machine, self._checkpoints, self._damage = machine, checkpoints, damage
        self._settings = settings
        self._run_blocking = run_blocking
        self._wheel = machine.wheel  # of what has been read
        self._hours = QueueHours(damage.reads)
        # hours thinned, with how many messages they kept: thinned again once a quarter of those is not needed
        self._done: dict[int, int] = {}

    async def run(self) -> None:
        """Run until cancelled. Raises OSError."""
        while True:
            await asyncio.sleep(self._settings.retention_check_ms / 1000)
            if self._machine.level >= levels.THINNED:
                await self.look()

    async def look(self) -> None:
        """Thin what is worth it. Raises OSError."""
        if self._machine.wheel is not self._wheel:  # another state has arrived
            self._wheel, self._hours, self._done = self._machine.wheel, QueueHours(self._damage.reads), {}
        if not self._is_busy():  # else a snapshot may have told what is in those pages
            self._wheel.punch_tails()  # of what was thinned at the last look
        try:
            passed = await self._passed()  # before queues are read: all of these hours is in queues by then
            kept = await self._counts()
            for hour, numbers in (await self._kept(await self._chosen(passed, kept))).items():
                await self._thin(hour, passed[hour], numbers)
        except (QueueDamaged, OSError) as error:
            if self._machine.wheel is not self._wheel:
                return  # another state has arrived, and the files of this one go
            if not isinstance(error, UnitsDamaged):
                raise
            self._damage.queues.report(error)  # whatever its units point to is not known: nothing goes

    async def _passed(self) -> dict[int, int]:
        """Return how many units there are in each hour that lies the window and more behind the release.

        The release may be some seconds ahead of cluster time, hence one hour more; no clock of a node counts.
        """
        wheel, units = self._wheel, {}
        window_ms = dispatch(self._machine.queues.defaults, self._settings).idempotency_window_ms
        before = max(0, (self._machine.frontier_ms - window_ms) // HOUR_MS - 1)
        for at, hour in enumerate(wheel.partitions()):
            if at % LOOKED_AT == 0:
                await asyncio.sleep(0)
            if hour < before and not wheel.pending_in_hour(hour):
                units[hour] = wheel.units_in_hour(hour)
        return units

    async def _counts(self) -> Counter[int]:
        """Return how many units of all queues point into each hour."""
        kept: Counter[int] = Counter()
        for at, queue in enumerate(list(self._machine.queues)):
            if at % QUEUES == 0:
                await asyncio.sleep(0)
            async for _ in self._hours.read(queue, queue.first):
                await asyncio.sleep(0)
            kept.update(self._hours.of(queue.queue))
        self._hours.forget({queue.queue for queue in self._machine.queues})
        return kept

    async def _chosen(self, passed: dict[int, int], kept: Counter[int]) -> list[int]:
        """Return hours to thin: with messages that nobody needs beside others."""
        wheel, chosen = self._wheel, list[int]()
        for gone in self._done.keys() - passed:
            del self._done[gone]
        for at, hour in enumerate(sorted(passed.keys() & kept.keys())):
            if at % LOOKED_AT == 0:
                await asyncio.sleep(0)
            units, count = passed[hour], kept[hour]
            if wheel.units_in_hour(hour) != units or 4 * count > 3 * self._done.get(hour, units):
                continue
            allocated_bytes = wheel.upkeep.allocated_bytes(hour)
            if is_worthwhile(allocated_bytes, allocated_bytes * count // units):
                chosen.append(hour)
            if len(chosen) == HOURS:
                break
        return chosen

    async def _kept(self, hours: list[int]) -> dict[int, NDArray[np.uint32]]:
        """Return the global indices that queues point to, ascending, of each hour.

        Queues only lose what points into these hours, but for messages that come meanwhile.
        """
        wanted = np.array(hours, np.uint32)
        parts: list[NDArray[np.void]] = []
        for queue in list(self._machine.queues) if hours else ():
            for first, end in self._hours.pointing(queue.queue, hours):
                if queue.deleted:
                    break
                units = await self._damage.reads.read_ahead_for(partial(queue.read_kept, first, end))
                parts.append(units[["hour", "global_index"]][np.isin(units["hour"], wanted)])
                await asyncio.sleep(0)
        found = np.concatenate(parts) if parts else np.empty(0, [("hour", "<u4"), ("global_index", "<u4")])
        return {hour: np.unique(found["global_index"][found["hour"] == hour]) for hour in hours}

    async def _thin(self, hour: int, units: int, kept: NDArray[np.uint32]) -> None:
        """Thin an hour, unless it has more units than those of which it is known which are kept."""
        wheel = self._wheel
        state = wheel.upkeep.hour_state(hour) if self._machine.wheel is wheel else None
        if state is None or state.units != units or not len(kept) or self._is_busy():
            return
        try:
            thinned = await self._run_blocking(partial(wheel.upkeep.write_thin, state, kept))
        except OSError as error:
            if error.errno not in _LEFT:
                raise
            if error.errno != errno.ENOENT:
                log.warning("hour not thinned", hour=hour, error=str(error))
            return
        except WheelDamaged as damage:
            if self._machine.wheel is wheel:
                self._damage.indices.report(hour, str(damage))
            return
        if self._machine.wheel is wheel and not self._is_busy() and wheel.upkeep.thin(thinned):
            self._done[hour] = len(kept)
            log.info("hour thinned", hour=hour, units=state.units, kept=len(kept))

    def _is_busy(self) -> bool:
        """Return whether a checkpoint or a snapshot under way names an index as it is."""
        return self._checkpoints.writing.locked() or self._machine.snapshots > 0
