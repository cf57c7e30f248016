"""What a checkpoint or an installed state rests on is on disk: a power loss leaves only what was synced."""

from __future__ import annotations

import asyncio

from tests.simulation.model_producer import ModelProducer
from tests.simulation.whole_node import WholeNode
from tests.simulation.whole_scenario import scenario, soon
from tests.simulation.whole_world import WholeWorld


async def lose_power(world: WholeWorld, node: WholeNode, times: int) -> None:
    for _ in range(times):
        node.crash()
        node.start(world.members)
        await asyncio.sleep(0.5)
        assert node.alive


def test_what_a_checkpoint_counts_outlasts_power_losses() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        for _ in range(4):
            await producer.schedule("a", soon(world, 30, 500))
            await asyncio.sleep(1)
            node = world.whole[0]
            node.take_checkpoint()
            await asyncio.sleep(0.1)
            await lose_power(world, node, 1)
            await world.until_served()

    assert scenario(play).ledger.settled


def test_a_state_that_has_been_installed_outlasts_power_losses() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        leader = await world.until_served()
        behind = next(node for node in world.whole if node is not leader)
        behind.crash()
        for _ in range(20):
            await producer.schedule("b", soon(world, 5, 5_000))
        for node in world.whole:
            node.take_checkpoint()
        await asyncio.sleep(0.2)
        behind.start(world.members)
        while world.checker.sometimes["snapshot installed"] == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await lose_power(world, behind, 6)

    assert scenario(play).ledger.settled
