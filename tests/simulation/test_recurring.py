"""Schedules that recur, in whole clusters: no fire is doubled or left out, whatever happens to the leader."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tarry.node.recurring.plan import AHEAD_MS
from tarry.proto import tarry_recurring_pb2 as pb
from tarry.proto.ledger.schema import Kind
from tarry.replication.errors import TransferRefused
from tests.simulation import faults
from tests.simulation.model_producer import ModelProducer
from tests.simulation.model_recurring import CHANGING, STEADY, TOPIC, Recurring
from tests.simulation.upgrade import until_raised
from tests.simulation.whole_scenario import scenario
from tests.simulation.whole_world import WholeWorld

EVERY_S = pb.RecurringSpec(interval_ms=1_000)


def played(play: Callable[[WholeWorld, Recurring], Awaitable[None]], *, steady: bool = True) -> WholeWorld:
    """With the steady schedules there; judged at the end."""

    async def run(world: WholeWorld, _: ModelProducer) -> None:
        recurring = world.recurring
        if steady:
            for name, spec in STEADY.items():
                await recurring.put(name, spec)
        await play(world, recurring)
        await world.mend()
        await recurring.settle()
        recurring.judge()

    async def begin(world: WholeWorld) -> None:
        world.finish = "auto"
        world.start()
        await world.until_served()
        await until_raised(world)

    return scenario(run, consumers=False, begin=begin)


async def kill(world: WholeWorld) -> None:
    leader = await world.until_served()
    leader.crash()
    await asyncio.sleep(world.rng.uniform(0.0, 0.6))
    faults.restart(world, leader)


async def transfer(world: WholeWorld) -> None:
    """Transfer leadership; again where a node is out of reach yet, or another was elected meanwhile."""
    for _ in range(20):
        leader = await world.until_served()
        heir = world.rng.choice([node for node in world.whole if node is not leader])
        try:
            await leader.driver.transfer(heir.name, 2_000)
        except TransferRefused:
            await asyncio.sleep(0.1)
        else:
            world.counts["transferred"] += 1
            return


def test_fifty_kills_and_fifty_transfers_double_no_fire_and_leave_none_out() -> None:
    async def play(world: WholeWorld, _: Recurring) -> None:
        for _ in range(50):
            for change in (kill, transfer):
                await asyncio.sleep(world.rng.uniform(0.05, 0.7))
                await change(world)

    world = played(play)
    assert world.recurring.counts["missed"] == 0  # no leader was away for so long
    assert world.recurring.counts["fired"] > 150
    assert world.counts["transferred"] == 50


@pytest.mark.parametrize("ahead_ms", [-60_000, 700, 2 * 3_600_000])
def test_a_clock_that_jumps_during_a_fire_neither_doubles_it_nor_moves_it(ahead_ms: int) -> None:
    async def play(world: WholeWorld, _: Recurring) -> None:
        for before_ms in (0, 40, 80, 120, 160, AHEAD_MS - 40, AHEAD_MS, AHEAD_MS + 40):
            leader = await world.until_served()
            world.wrong = leader
            await asyncio.sleep((2_000 - world.true_ms() % 2_000 - before_ms) % 2_000 / 1_000)  # of "cron"
            leader.wall.ahead_ms = ahead_ms
            await asyncio.sleep(world.rng.uniform(0.5, 3.0))
            leader.wall.ahead_ms = 0
            await asyncio.sleep(1.0)
            for node in world.whole:
                for entry in node.core.machine.recurring:
                    assert entry.state().decided_ms < world.true_ms() + 1_000

    played(play)


def test_a_pause_that_races_a_fire_lets_it_through_once_or_not_at_all() -> None:
    async def play(world: WholeWorld, recurring: Recurring) -> None:
        await recurring.put(CHANGING, EVERY_S)
        for number in range(60):
            await asyncio.sleep(0.05)  # the next fire is worked out
            entry = (await world.until_served()).core.machine.recurring.named(CHANGING)
            assert entry is not None
            wait_ms = max(entry.next_ms, world.true_ms()) - world.true_ms() - 600 + 10 * number
            await asyncio.sleep(max(0, wait_ms) / 1_000)
            await recurring.change("Pause")
            if number % 3:
                await asyncio.sleep(world.rng.uniform(0.0, 0.7))
            await recurring.change("Resume")

    world = played(play, steady=False)
    assert world.recurring.counts["fired"] > 10
    assert len(world.rows.messages[TOPIC, Kind.CANCELLED]) > 5


def test_a_paused_schedule_does_not_fire() -> None:
    async def play(world: WholeWorld, recurring: Recurring) -> None:
        await recurring.put(CHANGING, EVERY_S)
        await asyncio.sleep(2.2)
        await recurring.change("Pause")
        paused_ms, before = world.true_ms(), len(world.rows.fires)
        await asyncio.sleep(0.1)
        assert before >= 2
        await kill(world)
        await asyncio.sleep(5)
        assert len(world.rows.fires) == before
        await recurring.change("Resume")
        await asyncio.sleep(2.5)
        later = [fire.fire_ms or 0 for fire, _ in world.rows.fires[before:]]
        assert later
        assert min(later) > paused_ms + 5_000

    played(play, steady=False)


def test_what_a_cluster_sleeps_over_follows_its_policy() -> None:
    async def play(world: WholeWorld, _: Recurring) -> None:
        await asyncio.sleep(1.5)
        world.asleep_ms += 100_000
        await asyncio.sleep(4)

    world = played(play)
    assert world.recurring.counts["missed"] > 60
    assert world.recurring.last["all"].missed == 0
    assert world.recurring.last["all"].fired >= 7


def test_a_fire_is_not_early_and_not_late_where_nothing_is_wrong() -> None:
    async def play(world: WholeWorld, recurring: Recurring) -> None:
        await recurring.put(CHANGING, EVERY_S)
        await asyncio.sleep(10)

    world = played(play, steady=False)
    released = world.rows.released[TOPIC]
    late_ms = [
        released[message][1] - (fire.fire_ms or 0)
        for fire, message in world.rows.fires
        if message in released
    ]
    assert len(late_ms) >= 9
    assert max(late_ms) <= 0  # each was released before it was due
