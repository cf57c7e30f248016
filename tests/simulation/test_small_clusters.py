"""Clusters of one, two and four: what rests on one disk, and what needs both."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation.playing import followers, scenario, write
from tests.simulation.world import World


def test_a_cluster_of_one_acknowledges_nothing_that_its_disk_has_not() -> None:
    async def play(world: World) -> None:
        (node,) = world.nodes
        node.sync_s = 0.05
        await write(world, 5)
        node.crash()
        await asyncio.sleep(0.1)
        node.start(world.members)

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
