"""Nodes of two versions in one cluster: upgraded one at a time, and back, with leaders that die meanwhile."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Literal

import pytest

from tarry.replication.errors import LevelRefused
from tarry.replication.state_machine.commands import Opcode
from tests.simulation.model_producer import ModelProducer
from tests.simulation.whole_node import WholeNode
from tests.simulation.whole_scenario import scenario, soon
from tests.simulation.whole_world import WholeWorld

RAISE = bytes((Opcode.RAISE_LEVEL, 0x08, 2))
"""Begins the command that raises the level to 2."""


def begin(finish: Literal["auto", "manual"], *old: int) -> Callable[[WholeWorld], Awaitable[None]]:
    """Start all nodes, those of these places with the version of level 1."""

    async def started(world: WholeWorld) -> None:
        world.finish = finish
        for place in old:
            world.whole[place].applies = 1
        world.start()

    return started


async def exchange(node: WholeNode, applies: int) -> None:
    """Stop a node, and start another version with its data."""
    node.crash()
    node.applies = applies
    node.start(node.world.members)
    await asyncio.sleep(0.5)


async def until(world: WholeWorld, is_so: Callable[[], bool], step_s: float = 0.02) -> None:
    for _ in range(round(8 / step_s)):
        if is_so():
            return
        await asyncio.sleep(step_s)
    raise AssertionError(levels_of(world))


def levels_of(world: WholeWorld) -> list[int]:
    return [node.core.machine.level for node in world.whole if node.alive]


async def finish(world: WholeWorld) -> int:
    leader = await world.until_served()
    work = leader.core.leadership.upgrade.finish()
    return await asyncio.get_running_loop().create_task(work, context=leader.processor.context)


def others(world: WholeWorld, node: WholeNode) -> list[WholeNode]:
    return [other for other in world.whole if other is not node]


def test_a_cluster_is_upgraded_one_node_at_a_time_and_its_level_raised_after_the_last() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        for node in world.whole:
            await producer.schedule("a", soon(world, 30, 1_500))
            assert set(levels_of(world)) == {1}
            await exchange(node, 2)
            await asyncio.sleep(1.0)
            (await world.until_served()).crash()  # whoever leads, of either version
            await world.mend()
            await producer.schedule("b", soon(world, 30, 1_500))
        await until(world, lambda: levels_of(world) == [2, 2, 2])
        assert not any(node.too_old for node in world.whole)

    scenario(play, begin=begin("auto", 0, 1, 2))


@pytest.mark.parametrize("whose", ["leader", "all"])
@pytest.mark.parametrize("after_ms", [0, 1, 2, 3, 5, 8])
def test_a_level_survives_a_power_loss_at_any_moment_around_its_raise(whose: str, after_ms: int) -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        await producer.schedule("a", soon(world, 30, 1_500))
        leader = await world.until_served()
        raised = asyncio.ensure_future(finish(world))
        last = leader.journal.last_index
        await until(world, lambda: leader.journal.last_index > last)  # it is in the leader's log
        await asyncio.sleep(after_ms / 1000)
        for node in world.whole if whose == "all" else [leader]:
            node.take_checkpoint()
            node.crash()
        raised.cancel()
        before = [node.core.machine.level for node in world.whole]
        await world.mend()
        await world.until_served()
        await asyncio.sleep(0.5)
        assert len(set(levels_of(world))) == 1
        assert levels_of(world)[0] >= max(before)
        await finish(world)
        await until(world, lambda: levels_of(world) == [2, 2, 2])

    scenario(play, begin=begin("manual"))


def test_an_upgrade_is_not_finished_while_one_member_runs_the_version_before() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        await producer.schedule("a", soon(world, 30, 1_500))
        old = world.whole[0]
        if await world.until_served() is old:
            await old.driver.transfer(None, 2_000)
        with pytest.raises(LevelRefused, match=f"{old.name}: .* applies level 1 at most"):
            await finish(world)
        await asyncio.sleep(1.0)
        assert levels_of(world) == [1, 1, 1]
        assert not old.too_old

    scenario(play, begin=begin("manual", 0))


def test_an_upgrade_is_not_finished_while_one_member_does_not_answer() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        away = others(world, await world.until_served())[0]
        await asyncio.sleep(0.5)  # it has said what it can apply
        away.crash()
        with pytest.raises(LevelRefused, match=f"{away.name}: it does not answer"):
            await finish(world)
        assert set(levels_of(world)) == {1}
        away.start(world.members)
        await asyncio.sleep(0.5)
        assert await finish(world) == 2

    scenario(play, begin=begin("manual"))


def test_a_member_that_has_gone_back_to_the_version_before_does_not_count_by_what_it_said_before() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        back = others(world, await world.until_served())[0]
        await asyncio.sleep(0.5)
        raised = asyncio.ensure_future(exchange(back, 1))
        await asyncio.sleep(0)
        with pytest.raises(LevelRefused, match=f"{back.name}: .* applies level 1 at most"):
            await finish(world)
        await raised
        await asyncio.sleep(0.5)
        assert levels_of(world) == [1, 1, 1]
        assert not back.too_old

    scenario(play, begin=begin("manual"))


@pytest.mark.parametrize("checkpoint", [False, True])
def test_who_goes_back_after_the_raise_is_told_why_it_cannot_and_goes_on_with_the_later_version(
    checkpoint: bool,
) -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        back = others(world, await world.until_served())[0]
        await asyncio.sleep(0.5)
        assert await finish(world) == 2
        await until(world, lambda: levels_of(world) == [2, 2, 2])
        await producer.schedule("a", soon(world, 30, 1_500))
        if checkpoint:
            back.take_checkpoint()
            await asyncio.sleep(0.2)
        before = back.core.machine.applied_index
        await exchange(back, 1)
        assert not back.alive
        assert "applies 1 at most" in str(back.too_old[0]) or "does not know" in str(back.too_old[0])
        assert back.core.machine.applied_index <= before
        await exchange(back, 2)
        await until(world, lambda: levels_of(world) == [2, 2, 2])

    scenario(play, begin=begin("manual"))


def test_a_member_that_lacks_the_raise_and_has_gone_back_is_told_by_its_leader() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        leader = await world.until_served()
        back = others(world, leader)[0]
        raised = asyncio.ensure_future(finish(world))
        await until(world, lambda: RAISE in leader.journal.entry(leader.journal.last_index)[0], 0.0005)
        back.crash()  # before it can know that the raise is committed
        assert await raised == 2
        await exchange(back, 1)
        assert back.core.machine.level == 1
        assert "the cluster is of level 2, and this tarry applies 1 at most" in str(back.too_old[0])
        back.applies = 2

    scenario(play, begin=begin("manual"))


def test_a_node_of_the_version_before_is_not_added_to_a_cluster_of_a_higher_level() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        leader = await world.until_served()
        await asyncio.sleep(0.5)
        assert await finish(world) == 2
        emptied = others(world, leader)[0]
        emptied.applies = 1
        emptied.lose_disk()
        world.rejoin(emptied)
        await asyncio.sleep(2.0)
        assert emptied.name not in leader.driver.status().members
        refused = f"{emptied.name} cannot be added to a cluster of level 2: .* applies level 1 at most"
        assert any(re.search(refused, line) for line in world.history)
        await exchange(emptied, 2)
        await until(world, lambda: emptied.name in leader.driver.status().members)

    scenario(play, begin=begin("manual"))


def test_a_change_of_members_waits_for_a_raise_that_the_leader_has_begun() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        leader = await world.until_served()
        await asyncio.sleep(0.5)
        raised = asyncio.ensure_future(finish(world))
        await until(world, lambda: bool(leader.driver._membership_changes._running), 0.0005)
        assert levels_of(world) == [1, 1, 1]
        removal = leader.driver.remove(others(world, leader)[0].name)
        await asyncio.get_running_loop().create_task(removal, context=leader.processor.context)
        assert raised.done()
        assert len(leader.driver.status().members) == 2

    scenario(play, begin=begin("manual"))
