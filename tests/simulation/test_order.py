"""Messages with an ordering key, in whole nodes: what `Order` sees of them."""

from __future__ import annotations

import asyncio

from tests.simulation.model_consumer import ModelConsumer
from tests.simulation.model_producer import ModelProducer
from tests.simulation.whole_scenario import scenario, soon
from tests.simulation.whole_world import WholeWorld


def test_messages_with_one_key_are_delivered_one_after_another() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        for key in ("one", "other"):
            await producer.schedule("a", soon(world, 20, 100), key)
        await asyncio.sleep(0.5)
        (await world.until_served()).crash()
        await asyncio.sleep(0.5)
        for node in world.nodes:
            if not node.alive:
                node.start(world.members)

    world = scenario(play)
    assert world.rows.order.delivered >= 80


def test_what_follows_a_retry_under_its_key_waits_for_it() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        nacking = asyncio.ensure_future(ModelConsumer(world, "nacks", "a", "g1", nacks=1.0).run())
        await producer.schedule("a", soon(world, 20, 100), "one")
        await asyncio.sleep(3)
        nacking.cancel()

    world = scenario(play)
    assert world.ledger.counts["retried"]
