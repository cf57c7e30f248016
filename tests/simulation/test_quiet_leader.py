"""Heartbeats are rarer while nothing changes; what a quiet leader then has to tell must not come later."""

from __future__ import annotations

import asyncio

from tests.simulation.model_consumer import ModelConsumer
from tests.simulation.model_producer import ModelProducer
from tests.simulation.whole_node import WholeNode
from tests.simulation.whole_scenario import scenario
from tests.simulation.whole_world import WholeWorld


def is_quiet(leader: WholeNode) -> bool:
    return leader.core.driver.consensus.heartbeats.interval_s > 0.05


def test_what_a_quiet_leader_delivers_is_told_as_soon_as_ever() -> None:
    """Within a heartbeat's usual time, though nothing is proposed for it."""

    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        leader = await world.until_served()
        first, second = (ModelConsumer(world, name, "a", "g1", thinks_s=1e6) for name in ("first", "second"))
        await producer.schedule("a", [world.true_ms()] * 80)
        tasks = [asyncio.ensure_future(first.run())]
        await asyncio.sleep(1.4)
        assert is_quiet(leader)
        tasks.append(asyncio.ensure_future(second.run()))
        for _ in range(400):
            await asyncio.sleep(0.001)
            if len(world.ledger.given) == 80:
                break
        await asyncio.sleep(0.055)
        assert not is_quiet(leader)
        for node in world.whole:
            told = [(cursor.offset, *cursor.consumers) for cursor in node.core.leadership.known().cursors]
            assert (80, "first", "second") in told
        for task in tasks:
            task.cancel()

    scenario(play, consumers=False)


def test_heartbeats_come_at_their_usual_pace_while_something_is_due_soon() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        leader = await world.until_served()
        await producer.schedule("a", [world.true_ms() + 20_000])
        await asyncio.sleep(3)
        assert is_quiet(leader)
        await asyncio.sleep(5)
        assert not is_quiet(leader)

    scenario(play, consumers=False)
