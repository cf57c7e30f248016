"""The scrub: reads hours, far log and ready queues again, so that damage is found while peers are whole."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import structlog

from tarry.node.config import Dispatch
from tarry.node.repair.records import Damage, Numbers
from tarry.replication.blocking import RunBlocking, in_thread
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.queue_checksums import QueueProof, Stretch
from tarry.replication.state_machine.ready_queue import UnitsDamaged, scan
from tarry.wheel.state import HourState, WheelDamaged

log = structlog.get_logger()

Place: TypeAlias = tuple[str, int]
"""Object of one step: "far", a segment of the far log, an "hour" or a "queue"; and its number."""


def step_ms(places: int, settings: Dispatch) -> int:
    """Return the pause between two places, hours or ready queues: all are looked at within one pass."""
    return min(settings.scrub_step_ms_max, settings.scrub_pass_ms // max(1, places))


def following(places: Sequence[Place], last: Place) -> Place | None:
    """Return the place to look at after ``last``, of ascending places; behind the last one, the first."""
    return next((place for place in places if place > last), places[0] if places else None)


def _is_there_as(looked_at: HourState, now: HourState | None) -> bool:
    """Return whether an hour has been neither deleted nor thinned since it was looked at."""
    if now is None:
        return False
    return now.units > looked_at.units or now.index_crc == looked_at.index_crc


class Scrub:
    """Looks at one place after the other, in a thread, at a low rate."""

    def __init__(
        self, machine: Machine, damage: Damage, settings: Dispatch, run_blocking: RunBlocking = in_thread
    ) -> None:
        self._run_blocking = run_blocking
        self._machine = machine
        self._damage = damage
        self._settings = settings
        self._ended = threading.Event()
        self._look = {"far": self._look_at_far, "hour": self._look_at, "queue": self._look_at_queue}

    async def run(self) -> None:
        """Look until cancelled."""
        last: Place = ("", -1)
        try:
            while True:
                await asyncio.sleep(step_ms(len(self._places()), self._settings) / 1000)
                place = following(self._places(), last)
                if place is not None:
                    await self._look[place[0]](place[1])
                    last = place
        finally:
            self._ended.set()  # or the thread would read on

    def _places(self) -> list[Place]:
        hours = [("hour", hour) for hour in self._machine.wheel.partitions()]
        far = [("far", segment.number) for segment in self._machine.wheel.upkeep.far_segments()]
        return far + hours + [("queue", q.queue) for q in self._machine.queues if q.units > q.first]

    async def _look_at_queue(self, number: int) -> None:
        queue = self._machine.queues[number]
        queue.flush()
        found = await self._run_blocking(partial(self._scan, queue.folder, queue.first, queue.proof.copy()))
        if queue is self._machine.queues[number]:  # no other state has arrived
            found = [stretch for stretch in found if not queue.deleted and stretch.end > queue.first]
            if found:
                self._damage.queues.report(UnitsDamaged(number, queue.topic, found))

    def _scan(self, folder: Path, first: int, proof: QueueProof) -> list[Stretch]:
        """Return what is damaged of a queue, read no faster than the settings allow. For a thread."""
        found: list[Stretch] = []
        for size, damaged in scan(folder, first, proof):
            found += damaged
            if self._ended.wait(size / self._settings.scrub_bytes_per_s):
                break
        return found

    async def _look_at(self, hour: int) -> None:
        wheel = self._machine.wheel
        state = wheel.upkeep.hour_state(hour)
        if state is None:
            return
        try:
            found = await self._run_blocking(partial(self._read, wheel.upkeep.walk(state)))
        except (OSError, WheelDamaged) as error:
            if self._machine.wheel is wheel and _is_there_as(state, wheel.upkeep.hour_state(hour)):
                self._damage.indices.report(hour, str(error))
            return
        self._damage.indices.sound(hour)
        if len(found) and self._machine.wheel is wheel and wheel.upkeep.hour_state(hour) is not None:
            self._damage.report(np.full(len(found), hour, dtype=np.uint32), found)

    async def _look_at_far(self, number: int) -> None:
        wheel = self._machine.wheel
        state = next(segment for segment in wheel.upkeep.far_segments() if segment.number == number)
        try:
            found = await self._run_blocking(partial(self._read, wheel.upkeep.walk_far(state)))
        except (OSError, WheelDamaged) as error:
            there = {segment.number for segment in self._machine.wheel.upkeep.far_segments()}
            if self._machine.wheel is wheel and number in there:  # not deleted meanwhile
                self._damage.far.report(number, str(error))
            return
        if self._machine.wheel is wheel:
            self._damage.far.sound(number)
            self._damage.report(*wheel.upkeep.far_ids(number, found))

    def _read(self, walk: Iterator[tuple[int, Numbers]]) -> Numbers:
        """Return the damaged records of a walk, read no faster than the settings allow. For a thread."""
        found = [np.empty(0, dtype=np.uint32)]
        for size, damaged in walk:
            found.append(damaged)
            if self._ended.wait(size / self._settings.scrub_bytes_per_s):
                break
        return np.concatenate(found)
