"""Strangers and members that say what no sound peer would."""

from __future__ import annotations

import asyncio

from tests.simulation import hostile
from tests.simulation.playing import elections, scenario, write
from tests.simulation.world import World


def test_nothing_that_a_stranger_says_moves_anybody() -> None:
    async def play(world: World) -> None:
        before = elections(world)
        for node in world.nodes:
            for frame in hostile.frames(world, node, world.rng):
                node.processor.context.run(node.transport.arrive, frame)
        await asyncio.sleep(1)
        await write(world, 3)
        assert elections(world) == before
        assert world.network.refused == 2 * len(world.nodes)

    scenario(play)


def test_no_absurd_term_of_a_member_is_believed() -> None:
    async def play(world: World) -> None:
        before = elections(world)
        for node in world.nodes:
            hostile.speak_absurdly(world, node, world.rng)
        await asyncio.sleep(1)
        await write(world, 3)
        assert elections(world) == before

    scenario(play)
