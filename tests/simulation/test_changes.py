"""Pending messages that several clients change at the same time, while leaders die and answers are lost."""

from __future__ import annotations

import asyncio
import random

import pytest

from tarry.chaos.history import Asked, Operation
from tests.simulation.checker import Violation
from tests.simulation.model_producer import ModelProducer
from tests.simulation.test_levels import finish
from tests.simulation.whole_scenario import scenario
from tests.simulation.whole_seeds import small_parts
from tests.simulation.whole_world import WholeWorld

KILLS = 3
SEEN = (
    "reschedule changed", "reschedule due_differs", "reschedule already_released", "update changed",
    "cancel cancelled", "sweep done", "get pending", "get released", "list pending", "list absent",
)  # fmt: skip


async def change_under_dying_leaders(world: WholeWorld, _: ModelProducer) -> None:
    rng, loop = random.Random("kills"), asyncio.get_running_loop()
    await finish(world)
    world.answers_lost = 0.1
    changing = asyncio.ensure_future(world.changes.run(loop.time() + 3.5))
    for _ in range(KILLS):
        await asyncio.sleep(rng.uniform(0.2, 0.7))
        (await world.until_served()).crash()
        await asyncio.sleep(rng.uniform(0.2, 0.6))
        await world.mend()
    await changing


def test_changes_at_the_same_time_are_explained_by_one_order_whoever_leads() -> None:
    with small_parts():
        world = scenario(change_under_dying_leaders)
    assert [name for name in SEEN if not world.changes.counts[name]] == []
    assert len(world.checker.leaders) > KILLS
    assert sum(one.answered_mono_ms is not None for one in world.changes.history.operations) > 500


def test_an_answer_that_does_not_fit_is_found() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        await finish(world)
        await world.changes.run(asyncio.get_running_loop().time() + 1.0)
        told = world.changes.history.operations
        one = next(one for one in told if one.asked is Asked.RESCHEDULE and one.outcome == "changed")
        told.append(Operation(one.token, Asked.GET, "pending", 0, 1, told_due_ms=one.told_due_ms))

    with pytest.raises(Violation, match="L13: no order explains"):
        scenario(play)
