"""The node measures its event loop's turns by cause, and tells of long ones, but not of all of them."""

from __future__ import annotations

import asyncio
import gc
import time
from functools import partial

import pytest
from structlog.testing import capture_logs

from tarry.node.clock import precise_loop
from tarry.node.loop_watchdog import Collections, LongHolds, turns
from tarry.replication.loop_holds import Hold, Holds
from tests import turns as cost


def work(seconds: float) -> None:
    until_s = time.thread_time() + seconds
    while time.thread_time() < until_s:
        pass


def test_the_loop_tells_of_each_turn() -> None:
    async def play(steps: cost.Steps, holds: Holds) -> None:
        async with steps.step("three turns"):
            for _ in range(3):
                await asyncio.sleep(0)
                work(0.008)
        async with steps.step("one turn"):
            with holds.by("busy"):
                work(0.024)

    busiest = cost.busiest(play)
    assert 0.008 <= busiest["three turns"].cpu_s < 0.020
    assert busiest["one turn"].cpu_s >= 0.024
    assert busiest["one turn"].cause == "busy"


def test_waiting_is_no_turn() -> None:
    async def play(steps: cost.Steps, _: Holds) -> None:
        async with steps.step("waiting"):
            await asyncio.sleep(0.05)

    assert cost.busiest(play)["waiting"].cpu_s < 0.020


def test_a_step_that_takes_too_long_is_found() -> None:
    async def play(steps: cost.Steps, _: Holds) -> None:
        for name, seconds in (("short", 0.001), ("long", 2 * cost.bound_s())):
            async with steps.step(name):
                work(seconds)

    assert list(cost.too_long(play)) == ["long"]


def test_a_whole_collection_is_a_cause() -> None:
    holds = Holds()
    collections = Collections(holds)
    gc.callbacks.append(collections)
    try:
        gc.collect(0)
        assert not holds.causes
        gc.collect()
    finally:
        gc.callbacks.remove(collections)
    assert list(holds.causes) == ["garbage collection"]


def test_long_turns_are_told_of_at_a_bounded_rate() -> None:
    now_s = 0.0
    told = LongHolds(lambda: now_s)
    with capture_logs() as logs:
        for second in range(25):
            now_s = float(second)
            told.log(Hold("status", 0.150, 0.120, 1))
    assert [(entry["held_ms"], entry["untold"]) for entry in logs] == [(150, 0), (150, 9), (150, 9)]
    assert {entry["cause"] for entry in logs} == {"status"}


def test_a_status_names_the_longest_first() -> None:
    clock = iter(float(number) for number in range(100))
    holds = Holds(partial(next, clock), lambda: 0.0, lambda: 7.0)
    holds.begin_turn()
    for cause, parts in (("short", 0), ("long", 2)):
        with holds.by(cause):
            for _ in range(parts):
                holds.now_s()
    holds.end_turn()
    told = turns(holds)
    assert [hold.cause for hold in told.causes] == ["long", "short"]
    assert told.longest.cause == "long"
    assert told.longest.at_ms == 7_000
    assert told.over_100_ms == told.over_20_ms == 1


def test_a_loop_without_measurement_is_possible() -> None:
    with asyncio.Runner(loop_factory=precise_loop.new) as runner:
        assert runner.run(asyncio.sleep(0, "done")) == "done"


@pytest.mark.parametrize("allowed_s", [0.020, 1.0])
def test_a_machine_is_never_allowed_less_than_the_bound(allowed_s: float) -> None:
    assert cost.bound_s(allowed_s) >= allowed_s
