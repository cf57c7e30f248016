"""Retention: what every group is past, and has been kept for long enough, is deleted.

Ready queues are cut at an offset. An hour partition goes whole, once the
release is past it and no offset that is left points into it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import structlog

from tarry.node import redrive
from tarry.node.clock import ClusterTime
from tarry.node.config import Dispatch
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.machine import Machine
from tarry.replication.ready_queue import ReadyQueue, UnitsDamaged
from tarry.wheel.state import HOUR_MS

log = structlog.get_logger()

BLOCK_UNITS: Final = 65_536  # some 0.3 ms


class _Block(NamedTuple):
    """Offsets from ``first`` to ``end`` of a queue have been read: they point into these hours."""

    first: int
    end: int
    hours: frozenset[int]


class Kept:
    """What may be forgotten, and which hours all the rest points into; of what has been read only once.

    Units never change, so a block is read again only where the cut has come to lie within it.
    """

    def __init__(self, machine: Machine, retention_ms: int) -> None:
        """``retention_ms``: of topics that say nothing else."""
        self._machine = machine
        self._retention_ms = retention_ms
        self._blocks: dict[int, dict[int, _Block]] = {}  # by queue and offset // BLOCK_UNITS

    async def plan(self, now_ms: int) -> log_pb.TrimCommand | None:
        """Return what may be forgotten now, None where nothing may.

        Nearly all is read before, a block a turn of the event loop. What the plan rests on is then read in
        one turn: what has been released meanwhile keeps its hours too.
        """
        floors, cuts = self._floors(), {}
        for queue in list(self._machine.queues):
            await asyncio.sleep(0)
            cuts[queue.queue] = cut = self._cut(queue, floors, now_ms)
            for _ in self._read(queue, cut):
                await asyncio.sleep(0)
        return self._plan(cuts, now_ms)

    def _plan(self, cuts: dict[int, int], now_ms: int) -> log_pb.TrimCommand | None:
        machine, floors = self._machine, self._floors()
        needed: set[int] = set()
        for queue in machine.queues:
            cut = cuts.setdefault(queue.queue, queue.first)
            if floors.get(queue.queue, queue.units) < cut:
                return None  # a group has gone back meanwhile: next time
            for _ in self._read(queue, cut):
                pass
            needed.update(*(block.hours for block in self._blocks[queue.queue].values()))
        there = {queue.queue: queue.first for queue in machine.queues}
        cuts = {queue: cut for queue, cut in cuts.items() if queue in there and cut > there[queue]}
        for deleted in self._blocks.keys() - there.keys():
            del self._blocks[deleted]
        passed = machine.frontier_ms // HOUR_MS
        wheel = machine.wheel
        hours = [
            hour
            for hour in wheel.hours(max(0, passed - 1))
            if hour not in needed and not wheel.pending_in_hour(hour)
        ]
        if not cuts and not hours:
            return None
        return log_pb.TrimCommand(
            queue=np.array(list(cuts), dtype="<u4").tobytes(),
            offset=np.array(list(cuts.values()), dtype="<u8").tobytes(),
            hour=np.array(hours, dtype="<u4").tobytes(),
            units=np.array([wheel.units_in_hour(hour) for hour in hours], dtype="<u8").tobytes(),
            now_ms=now_ms,
        )

    def _floors(self) -> dict[int, int]:
        """Return, by queue, the offset that all its groups are past; none for a queue without groups."""
        floors: dict[int, int] = {}
        for (group, queue), acknowledged in self._machine.queues.acknowledged.items():
            if group != redrive.GROUP:
                floors[queue] = min(acknowledged.floor, floors.get(queue, acknowledged.floor))
        return floors

    def _cut(self, queue: ReadyQueue, floors: dict[int, int], now_ms: int) -> int:
        """Return the offset below which a queue may be forgotten.

        A retry queue belongs to one group and is kept no longer than it needs it;
        a topic without groups is kept for its retention.
        """
        if queue.group:
            return max(queue.first, floors.get(queue.queue, queue.first))
        retention_ms = queue.settings.retention_ms or self._retention_ms
        kept = queue.find_released(now_ms - retention_ms)
        return max(queue.first, min(kept, floors.get(queue.queue, queue.units)))

    def _read(self, queue: ReadyQueue, cut: int) -> Iterator[None]:
        """Read what is not known yet of the offsets from the cut on, a block a step."""
        blocks = self._blocks.setdefault(queue.queue, {})
        first = cut // BLOCK_UNITS
        for passed in [number for number in blocks if number < first]:
            del blocks[passed]
        for number in range(first, -(-queue.units // BLOCK_UNITS)):
            if queue.deleted:
                return  # between two steps
            begin, end = max(cut, number * BLOCK_UNITS), min(queue.units, (number + 1) * BLOCK_UNITS)
            known = blocks.get(number)
            if known is None or known.first != begin:
                known = _Block(begin, begin, frozenset())
            if known.end < end:
                hours = queue.read(known.end, end - known.end)["hour"]
                changes = np.flatnonzero(hours[1:] != hours[:-1])
                fresh = np.unique(hours[np.append(changes, -1)]).tolist()
                blocks[number] = _Block(begin, end, known.hours.union(fresh))
                yield


class Retention:
    """Looks now and then, at the leader."""

    def __init__(
        self,
        machine: Machine,
        time: ClusterTime,
        settings: Dispatch,
        propose: Callable[[log_pb.TrimCommand], Awaitable[Any]],
        on_damage: Callable[[UnitsDamaged], None],
    ) -> None:
        self._kept = Kept(machine, settings.retention_ms)
        self._time = time
        self._settings = settings
        self._propose = propose
        self._on_damage = on_damage

    async def run(self) -> None:
        """Run until cancelled. Raises NotLeader, Unknown: the next leader goes on."""
        while True:
            await asyncio.sleep(self._settings.retention_check_ms / 1000)
            try:
                command = await self._kept.plan(self._time.now_ms())
            except UnitsDamaged as damage:  # whatever its units point into is not known: nothing goes
                self._on_damage(damage)
                continue
            if command is not None:
                await self._propose(command)
                log.info("trimmed", queues=len(command.queue) // 4, hours=len(command.hour) // 4)
