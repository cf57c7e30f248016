"""A topic with settings, in whole nodes."""

from __future__ import annotations

import asyncio

from tarry.proto.tarry_operator_pb2 import MisfirePolicy
from tests.simulation.model_producer import ModelProducer
from tests.simulation.whole_scenario import scenario, soon
from tests.simulation.whole_world import GROUPS, SHAPED, WholeWorld


def test_what_comes_due_while_all_sleep_is_dropped_where_its_topic_says_so() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        await world.shape(MisfirePolicy.MISFIRE_POLICY_DROP)
        await producer.schedule(SHAPED, soon(world, 20, 2_000))
        await asyncio.sleep(1)
        world.asleep_ms += 30_000
        await asyncio.sleep(2)

    world = scenario(play, groups={**GROUPS, SHAPED: [f"{SHAPED}/g1"]})
    assert 0 < len(world.ledger.expired[SHAPED]) < 20
