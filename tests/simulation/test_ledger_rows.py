"""What the ledgers of whole nodes are told: every replica the same, and all that clients know of."""

from __future__ import annotations

import asyncio

from tarry.proto.ledger.schema import Kind
from tests.simulation.model_consumer import ModelConsumer
from tests.simulation.model_producer import ModelProducer
from tests.simulation.whole_scenario import scenario, soon
from tests.simulation.whole_world import WholeWorld


def test_the_rows_of_retries_name_the_messages_that_the_copies_stand_for() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        nacking = asyncio.ensure_future(ModelConsumer(world, "nacks", "a", "g1", nacks=1.0).run())
        await producer.schedule("a", soon(world, 100, 500))
        await asyncio.sleep(2)
        nacking.cancel()

    world = scenario(play)
    assert world.rows.messages["a/g1", Kind.RETRIED]


def test_a_restarted_node_tells_its_ledger_what_it_told_before() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        await producer.schedule("a", soon(world, 100, 1_000))
        await asyncio.sleep(0.6)
        world.crash_all()
        for node in world.nodes:
            node.start(world.members)

    world = scenario(play)
    assert len(world.rows.messages["a", Kind.RELEASED]) == 100
