"""Retention: what every group is past, and has been kept for long enough, is deleted.

Ready queues are cut at an offset. An hour partition goes whole, once the
release is past it and no offset that is left points into it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import numpy as np
import structlog

from tarry.node import redrive
from tarry.node.clock import ClusterTime
from tarry.node.config import Dispatch
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.machine import Machine
from tarry.replication.queues import Queues
from tarry.replication.ready_queue import ReadyQueue
from tarry.wheel.state import HOUR_MS

log = structlog.get_logger()

READ_UNITS: Final = 65_536


def cut_of(queues: Queues, queue: ReadyQueue, now_ms: int, retention_ms: int) -> int:
    """Return the offset below which a queue may be forgotten.

    A retry queue belongs to one group and is kept no longer than it needs it;
    a topic without groups is kept for its retention.
    """
    groups = [group for group in queues.groups_of(queue.queue) if group != redrive.GROUP]
    floors = [queues.acknowledged[group, queue.queue].floor for group in groups]
    cut = min(floors, default=queue.units)
    if queue.group:
        return cut if floors else queue.first
    retention_ms = queue.settings.retention_ms or retention_ms
    return min(cut, queue.find_released(now_ms - retention_ms))


def hours_of(queue: ReadyQueue, first: int) -> set[int]:
    """Return the hours that the queue's offsets from first on point into."""
    hours: set[int] = set()
    for offset in range(first, queue.units, READ_UNITS):
        hours.update(np.unique(queue.read(offset, READ_UNITS)["hour"]).tolist())
    return hours


def plan(machine: Machine, now_ms: int, retention_ms: int) -> log_pb.TrimCommand | None:
    """Return what may be forgotten now, None where nothing may."""
    cuts: dict[int, int] = {}
    needed: set[int] = set()
    for queue in machine.queues:
        cut = cut_of(machine.queues, queue, now_ms, retention_ms)
        if cut > queue.first:
            cuts[queue.queue] = cut
        needed |= hours_of(queue, max(cut, queue.first))
    passed = machine.frontier_ms // HOUR_MS
    busy = machine.wheel.pending_per_hour()
    hours = [h for h in machine.wheel.hours() if h < passed - 1 and h not in needed and not busy.get(h)]
    if not cuts and not hours:
        return None
    return log_pb.TrimCommand(
        queue=np.array(list(cuts), dtype="<u4").tobytes(),
        offset=np.array(list(cuts.values()), dtype="<u8").tobytes(),
        hour=np.array(hours, dtype="<u4").tobytes(),
        now_ms=now_ms,
    )


class Retention:
    """Looks now and then, at the leader."""

    def __init__(
        self,
        machine: Machine,
        time: ClusterTime,
        settings: Dispatch,
        propose: Callable[[log_pb.TrimCommand], Awaitable[Any]],
    ) -> None:
        self._machine = machine
        self._time = time
        self._settings = settings
        self._propose = propose

    async def run(self) -> None:
        """Run until cancelled. Raises NotLeader, Unknown: the next leader goes on."""
        while True:
            await asyncio.sleep(self._settings.retention_check_ms / 1000)
            command = plan(self._machine, self._time.now_ms(), self._settings.retention_ms)
            if command is not None:
                await self._propose(command)
                log.info("trimmed", queues=len(command.queue) // 4, hours=len(command.hour) // 4)
