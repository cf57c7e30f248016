"""Whose turn it is to cancel many messages, and what is left to others."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tarry.node.leader.bulk_turn import CALLS_MAX, WAIT_MS_MAX, BulkTurn
from tarry.wheel.state import WheelSettings
from tarry.wheel.wheel import Wheel
from tests.simulation import virtual_loop

ATTEMPT_S = 3.0
"""For which a client waits for an answer."""
WORK_NS = 85_000_000


def turn_of(folder: Path, *, overdue: bool) -> BulkTurn:
    wheel = Wheel(folder, WheelSettings())
    none: Any = np.zeros(1, np.uint32)
    wheel.append(np.array([1_000 if overdue else 10**9]), none, none.astype(np.uint64), [b"x"])
    machine: Any = SimpleNamespace(wheel=wheel)
    time: Any = SimpleNamespace(now_ms=lambda: 10_000)
    return BulkTurn(machine, time)


@pytest.mark.parametrize(("clients", "overdue"), [(2, True), (4, True), (10, True), (4, False), (30, False)])
def test_of_many_clients_each_is_answered_in_turn_and_in_time(
    tmp_path: Path, clients: int, overdue: bool
) -> None:
    turn, rng = turn_of(tmp_path, overdue=overdue), random.Random(1)
    answered, longest_s, seconds = [0] * clients, [0.0], 60.0

    async def client(number: int) -> None:
        loop = asyncio.get_running_loop()
        while True:
            call = number, answered[number]
            away_ms = turn.stay_away_ms(call)
            if away_ms:
                await asyncio.sleep(away_ms * rng.uniform(1.0, 1.5) / 1_000)
                continue
            begin_s = loop.time()
            async with turn.taken():
                await asyncio.sleep(WORK_NS / 1e9)
                turn.rest(WORK_NS)
            longest_s[0] = max(longest_s[0], loop.time() - begin_s)
            answered[number] += 1

    async def all_of_them() -> None:
        tasks = [asyncio.create_task(client(number)) for number in range(clients)]
        await asyncio.sleep(seconds)
        assert not any(task.done() for task in tasks)

    virtual_loop.run(all_of_them())
    period_s = WORK_NS / 1e9 * (10 if overdue else 2)
    assert longest_s[0] < ATTEMPT_S
    assert sum(answered) <= seconds / period_s + 1
    assert sum(answered) > 0.6 * seconds / period_s
    assert min(answered) > 0.6 * max(answered)


def test_an_answer_does_not_wait_for_the_rest_and_the_next_turn_does(tmp_path: Path) -> None:
    turn = turn_of(tmp_path, overdue=True)

    async def act() -> None:
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        async with turn.taken():
            turn.rest(WORK_NS)
        assert loop.time() == begin_s
        assert turn.stay_away_ms("next") == 0
        async with turn.taken():
            assert loop.time() == pytest.approx(begin_s + 9 * WORK_NS / 1e9)

    virtual_loop.run(act())


def test_no_more_calls_wait_than_may_and_who_is_refused_is_told_when_to_come(tmp_path: Path) -> None:
    turn = turn_of(tmp_path, overdue=False)

    async def act() -> None:
        tasks = [asyncio.create_task(hold()) for _ in range(CALLS_MAX)]
        await asyncio.sleep(0)
        assert turn.stay_away_ms("one more") >= WAIT_MS_MAX
        for number in range(2 * CALLS_MAX):
            turn.stay_away_ms(number)
        assert len(turn._line) == CALLS_MAX
        for task in tasks:
            task.cancel()

    async def hold() -> None:
        async with turn.taken():
            await asyncio.sleep(60)

    virtual_loop.run(act())
