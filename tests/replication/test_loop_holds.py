"""Turns and their parts are measured: by whom the loop was held, for how long, and how often too long."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Coroutine
from typing import Any

import pytest

from tarry.replication.loop_holds import CAUSES_MAX, OTHER, Hold, Holds


class Clock:
    """Wall clock and CPU time that go on as they are told."""

    def __init__(self) -> None:
        self.now_s = self.cpu_s = 1_000.0

    def work(self, seconds: float) -> None:
        self.now_s += seconds
        self.cpu_s += seconds

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def made() -> tuple[Clock, Holds]:
    clock = Clock()
    return clock, Holds(lambda: clock.now_s, lambda: clock.cpu_s, lambda: clock.now_s)


def test_the_longest_turn_is_kept_with_the_part_that_took_most_of_it() -> None:
    clock, holds = made()
    for apply_s, status_s in ((0.001, 0.002), (0.030, 0.005), (0.002, 0.001)):
        holds.begin_turn()
        with holds.by("apply"):
            clock.work(apply_s)
        with holds.by("status"):
            clock.work(status_s)
        holds.end_turn()
    assert holds.longest.cause == "apply"
    assert holds.longest.held_s == pytest.approx(0.035)
    assert holds.longest.at_ms == pytest.approx(1_000_038, abs=1)
    assert (holds.over_bound, holds.over_long) == (1, 0)
    assert holds.causes["status"].held_s == pytest.approx(0.005)
    assert holds.causes["apply"].over_bound == 1


def test_a_part_counts_without_those_within_it() -> None:
    clock, holds = made()
    with holds.by("turn"):
        clock.work(0.001)
        with holds.by("apply"):
            clock.work(0.010)
            with holds.by("delivery"):
                clock.work(0.003)
        clock.work(0.002)
    held = {name: round(cause.held_s, 6) for name, cause in holds.causes.items()}
    assert held == {"delivery": 0.003, "apply": 0.010, "turn": 0.003}


def test_waiting_for_the_processor_is_not_taken_for_work() -> None:
    clock, holds = made()
    for work_s, wait_s, cause in ((0.010, 0.0, "apply"), (0.001, 0.500, "status")):
        holds.begin_turn()
        with holds.by(cause):
            clock.work(work_s)
            clock.sleep(wait_s)
        holds.end_turn()
    assert (holds.longest.cause, holds.busiest.cause) == ("status", "apply")
    assert holds.busiest.cpu_s == pytest.approx(0.010)


def test_what_no_part_accounts_for_is_other() -> None:
    clock, holds = made()
    holds.begin_turn()
    with holds.by("apply"):
        clock.work(0.010)
    clock.work(0.020)
    holds.end_turn()
    assert holds.longest.cause == OTHER


def test_only_a_long_turn_is_told_of() -> None:
    clock, holds = made()
    told: list[Hold] = []
    holds.on_long = told.append
    for seconds in (0.099, 0.101):
        holds.begin_turn()
        clock.work(seconds)
        holds.end_turn()
    assert [hold.held_s for hold in told] == [pytest.approx(0.101)]
    assert (holds.over_bound, holds.over_long) == (2, 1)


def test_causes_are_bounded_however_many_names_there_are() -> None:
    _, holds = made()
    for number in range(10 * CAUSES_MAX):
        with holds.by(f"topic {number}"):
            pass
    assert len(holds.causes) <= CAUSES_MAX + 1


def test_each_step_of_a_coroutine_is_a_part_and_what_it_waits_for_is_none() -> None:
    clock, holds = made()

    async def work() -> str:
        clock.work(0.004)
        await asyncio.sleep(0)
        clock.work(0.007)
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 0.0)
        except TimeoutError:
            clock.work(0.001)
        return "done"

    async def other() -> None:
        clock.work(0.050)

    async def play() -> None:
        assert (await asyncio.gather(holds.steps("work", work()), other()))[0] == "done"
        assert await holds.steps("work", work()) == "done"  # awaited within another, too

    asyncio.run(play())
    assert holds.causes["work"].held_s == pytest.approx(0.007)


def test_an_error_goes_through_and_is_measured() -> None:
    clock, holds = made()

    async def work() -> None:
        clock.work(0.004)
        raise OSError("the disk is broken")

    async def play() -> None:
        await asyncio.ensure_future(holds.steps("work", work()))

    with pytest.raises(OSError, match="broken"):
        asyncio.run(play())
    assert holds.causes["work"].held_s == pytest.approx(0.004)


def test_what_is_cancelled_before_its_first_step_is_closed() -> None:
    async def work() -> None:
        raise AssertionError("begun")

    async def play() -> None:
        held: Coroutine[Any, Any, None] = Holds().steps("work", work())
        task = asyncio.ensure_future(held)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(play())
