"""The driver wakes up at its deadline, whatever its timer was set for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from tarry.replication.driver.driver import Driver
from tests.simulation import virtual_loop


class Sleeper:
    """A clock that is ahead of the event loop's by the time for which the machine slept."""

    def __init__(self) -> None:
        self.slept_s = 0.0

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time() + self.slept_s


def test_a_timer_that_was_set_before_the_machine_slept_holds_no_nearer_deadline_up() -> None:
    async def play() -> float:
        clock, deadline_s = Sleeper(), [0.0]
        consensus = SimpleNamespace(next_deadline=lambda: deadline_s[0])
        driver: Any = Driver.__new__(Driver)
        driver._replica = SimpleNamespace(wake=asyncio.Event(), consensus=consensus)
        driver._clock, driver._timer = clock, None
        deadline_s[0] = clock.monotonic_s() + 2.0  # an election's
        waiting = asyncio.create_task(driver._wait())
        await asyncio.sleep(0.01)
        driver._replica.wake.set()
        await waiting
        driver._replica.wake.clear()
        clock.slept_s = 1.98  # the timer's time is 10 ms away by this clock, and two seconds by the loop's
        begun_s = clock.monotonic_s()
        deadline_s[0] = begun_s + 0.05  # a heartbeat's
        await driver._wait()
        return clock.monotonic_s() - begun_s

    assert 0.05 <= virtual_loop.run(play()) < 0.051
