"""A year of stored messages: one member is away for it, or the whole cluster is."""

from __future__ import annotations

import asyncio

from tests.simulation.model_producer import ModelProducer
from tests.simulation.playing import elections
from tests.simulation.whole_scenario import scenario, soon
from tests.simulation.whole_world import WholeWorld

DAY_MS = 24 * 3_600_000
MONTH_MS = 365 * DAY_MS // 12
SLOWNESS = 5.0
TURN_S_MAX = 0.02


def test_a_member_that_was_away_for_a_year_takes_the_others_state_and_leads() -> None:
    """Its journal is long gone, most of its hours too, and what it has of the rest is the others' past."""

    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        leader = await world.until_served()
        away = next(node for node in world.whole if node is not leader)
        await producer.schedule("a", soon(world, 40, 14 * MONTH_MS))
        away.take_checkpoint()
        await asyncio.sleep(0.2)
        away.crash()
        left_at = away.core.machine.applied_index
        for _ in range(4):
            for topic in ("a", "b"):
                await producer.schedule(topic, soon(world, 30, 5 * MONTH_MS))
            await asyncio.sleep(0.5)
            world.asleep_ms += 3 * MONTH_MS
            await asyncio.sleep(3)
        journal = (await world.until_served()).journal
        assert journal.first_index > left_at
        away.start(world.members)
        await asyncio.sleep(5)
        assert world.checker.sometimes["snapshot installed"] == 1
        await (await world.until_served()).driver.transfer(away.name, 2_000)
        assert await world.until_served() is away
        await producer.schedule("a", soon(world, 40, 2_000))
        world.asleep_ms += 2 * MONTH_MS

    world = scenario(play)
    assert world.ledger.counts["retried"] == 0


def test_a_cluster_that_was_stopped_for_a_year_delivers_what_is_overdue_under_one_leader() -> None:
    """In turns that keep the leadership, though every node needs its time for what it does."""

    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        await world.until_served()
        for _ in range(2):
            for topic in ("a", "b"):
                await producer.schedule(topic, soon(world, 100, 12 * MONTH_MS))
        for node in world.whole:
            node.take_checkpoint()
        await asyncio.sleep(0.2)
        world.crash_all()
        await asyncio.sleep(0.2)
        world.asleep_ms += 12 * MONTH_MS
        before = elections(world)
        world.set_slowness(SLOWNESS)
        for node in world.whole:
            node.start(world.members)
        world.longest_turn_s, begun = 0.0, world.true_ms()
        while world.ledger.missing():
            await asyncio.sleep(0.05)
            assert world.true_ms() - begun < 30_000
        assert elections(world) == before + 1

    world = scenario(play)
    assert len(world.ledger.given) > 600
    assert world.longest_turn_s < SLOWNESS * TURN_S_MAX
