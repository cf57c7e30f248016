"""Whole nodes with async durability: losses of power, and what a state may not be ahead of."""

from __future__ import annotations

import asyncio
import random

import pytest

from tarry.proto.tarry_message_pb2 import DURABILITY_ASYNC
from tests.simulation.durabilities import set_durability
from tests.simulation.model_producer import ModelProducer
from tests.simulation.upgrade import until_raised
from tests.simulation.whole_node import WholeNode
from tests.simulation.whole_scenario import scenario, soon
from tests.simulation.whole_world import WholeWorld

FLUSH_MS = 10_000
"""Longer than the scenarios: what they write waits."""


async def begin_async(world: WholeWorld) -> None:
    world.finish = "auto"
    world.start()
    await world.until_served()
    await until_raised(world)
    await world.until_served()
    assert await set_durability(world, DURABILITY_ASYNC, FLUSH_MS)


def waits(node: WholeNode) -> bool:
    return node.journal.flushed_index < node.journal.durable_index


@pytest.mark.parametrize("leads", [True, False])
def test_async_power_loss_minority(leads: bool) -> None:
    """Its node comes back as a newcomer, and every message is delivered once due, once."""

    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        draw = random.Random(leads)
        for _ in range(2):
            leader = await world.until_served()
            node = leader if leads else draw.choice([one for one in world.whole if one is not leader])
            for _ in range(5):
                await producer.schedule("a", soon(world, 10, 2_000))
            assert waits(node)
            node.lose_power()
            assert node.disk.lost_power
            await asyncio.sleep(draw.random())
            node.start(world.members)
            await producer.schedule("b", soon(world, 20, 1_000))
            await world._gather_disks()
        assert world.checker.sometimes["power lost"] == world.checker.sometimes["rejoined"] == 2

    scenario(play, begin=begin_async)


def test_no_checkpoint_is_ahead_of_what_is_flushed() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        node = await world.until_served()
        for _ in range(5):
            await producer.schedule("a", soon(world, 10, 2_000))
        assert waits(node)
        _, index, _ = await node.core.checkpoints.write_with_digest()
        assert node.journal.flushed_index >= index

    scenario(play, begin=begin_async)
