"""The scrub reads every hour again now and then, to find damage while a peer still has the record whole."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import partial

import numpy as np
import structlog

from tarry.node.config import Dispatch
from tarry.node.damage import Damage, Numbers
from tarry.replication.core import RunBlocking, in_thread
from tarry.replication.machine import Machine
from tarry.wheel.state import HourState, WheelDamaged
from tarry.wheel.wheel import Wheel

log = structlog.get_logger()


def step_ms(hours: int, settings: Dispatch) -> int:
    """Return the pause between two hours: all of them are looked at within one pass."""
    return min(settings.scrub_step_ms_max, settings.scrub_pass_ms // max(1, hours))


def following(hours: Sequence[int], last: int) -> int | None:
    """Return the hour to look at after ``last``, of ascending hours; behind the last one, the first."""
    return next((hour for hour in hours if hour > last), hours[0] if hours else None)


class Scrub:
    """Looks at one hour after the other, in a thread, at a low rate."""

    def __init__(
        self, machine: Machine, damage: Damage, settings: Dispatch, run_blocking: RunBlocking = in_thread
    ) -> None:
        self._run_blocking = run_blocking
        self._machine = machine
        self._damage = damage
        self._settings = settings
        self._ended = threading.Event()

    async def run(self) -> None:
        """Look until cancelled."""
        last = -1
        try:
            while True:
                await asyncio.sleep(step_ms(len(self._machine.wheel.hours()), self._settings) / 1000)
                hour = following(self._machine.wheel.hours(), last)
                if hour is not None:
                    await self._look_at(hour)
                    last = hour
        finally:
            self._ended.set()  # or the thread would read on

    async def _look_at(self, hour: int) -> None:
        wheel = self._machine.wheel
        state = wheel.hour_state(hour)
        if state is None:
            return
        try:
            found = await self._run_blocking(partial(self._read, wheel, state))
        except (OSError, WheelDamaged) as error:
            if self._machine.wheel is wheel and wheel.hour_state(hour) is not None:  # not deleted meanwhile
                self._damage.indices.report(hour, str(error))
            return
        self._damage.indices.sound(hour)
        if len(found) and self._machine.wheel is wheel and wheel.hour_state(hour) is not None:
            self._damage.report(np.full(len(found), hour, dtype=np.uint32), found)

    def _read(self, wheel: Wheel, state: HourState) -> Numbers:
        """In a thread: return the damaged records of an hour, read no faster than the settings allow."""
        found = [np.empty(0, dtype=np.uint32)]
        for size, damaged in wheel.walk(state):
            found.append(damaged)
            if self._ended.wait(size / self._settings.scrub_bytes_per_s):
                break
        return np.concatenate(found)
