"""Clusters of one, two and four: what rests on one disk, and what needs both."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation import whole_scenario
from tests.simulation.model_producer import ModelProducer
from tests.simulation.playing import followers, scenario, write
from tests.simulation.whole_scenario import soon
from tests.simulation.whole_world import WholeWorld
from tests.simulation.world import SimNode, World


def test_a_cluster_of_one_acknowledges_nothing_that_its_disk_has_not() -> None:
    async def play(world: World) -> None:
        (node,) = world.nodes
        node.sync_s = 0.05
        await write(world, 5)
        node.crash()
        await asyncio.sleep(0.1)
        node.start(world.members)

    scenario(play, names=1)


def test_a_batch_that_a_full_disk_refused_is_not_written_by_a_later_power_loss() -> None:
    async def refuse_two_writes(world: World, node: SimNode) -> None:
        world.at_once = 0.0
        node.disk.room_bytes = 0
        await world.propose(node)
        world.at_once = 1.0
        node.start(world.members)
        await asyncio.sleep(1)
        assert not node.alive
        node.disk.room_bytes = None

    async def play(world: World) -> None:
        (node,) = world.nodes
        for _ in range(8):  # a power loss may leave nothing
            await refuse_two_writes(world, node)
            node.start(world.members)
            before = node.disk.read_head()
            node.crash()
            assert node.disk.read_head() == before
            node.start(world.members)
            await write(world, 1)
        assert world.counts["disks full"] == 16

    scenario(play, names=1)


@pytest.mark.parametrize(("names", "away", "serves"), [(2, 1, False), (4, 1, True), (4, 2, False)])
def test_a_cluster_serves_while_more_than_half_of_it_is_there(names: int, away: int, serves: bool) -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        gone = followers(world, leader)[:away]
        for node in gone:
            node.crash()
        await asyncio.sleep(1)
        assert (world.leader() is leader) == serves
        assert not serves or await world.propose(leader)

    scenario(play, names=names)


def test_a_node_by_itself_keeps_every_entry_that_no_checkpoint_contains() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        (node,) = world.whole
        await producer.schedule("a", soon(world, 10, 300))
        node.write_s = 1.0
        node.take_checkpoint()
        await asyncio.sleep(0.1)
        for _ in range(30):
            await producer.schedule("a", soon(world, 10, 300))
        assert node.writing is not None
        await node.writing
        await asyncio.sleep(0.1)
        node.crash()
        node.start(world.members)

    whole_scenario.scenario(play, names=1)
