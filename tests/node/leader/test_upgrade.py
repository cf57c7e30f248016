"""The end of an upgrade that the leader brings about by itself, and what goes on beside it."""

from __future__ import annotations

import asyncio

from tests.simulation.model_producer import ModelProducer
from tests.simulation.test_levels import begin, exchange, levels_of, until
from tests.simulation.whole_scenario import scenario
from tests.simulation.whole_world import WholeWorld


def test_a_member_that_died_in_an_upgrade_can_be_removed() -> None:
    """It had said that it can apply the next level, so that the others are all that the raise waits for."""

    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        old = world.whole[0]
        if await world.until_served() is old:
            await old.driver.transfer(None, 2_000)
        leader = await world.until_served()
        await asyncio.sleep(1.0)
        dead = next(node for node in world.whole if node not in (old, leader))
        dead.crash()
        await exchange(old, 2)
        await asyncio.sleep(1.0)
        leader = await world.until_served()
        # a raise may have begun before its silence was seen; it waits for an answer once, then none is tried
        await until(world, lambda: not leader.driver._membership_changes._running)
        for _ in range(20):  # at none of these moments another change is running
            assert not leader.driver._membership_changes._running
            await asyncio.sleep(0.31)
        assert levels_of(world) == [1, 1]
        removal = leader.driver.remove(dead.name)
        await asyncio.get_running_loop().create_task(removal, context=leader.processor.context)
        await until(world, lambda: levels_of(world) == [2, 2])

    scenario(play, begin=begin("auto", 0))
