"""Async durability: whoever is killed loses nothing, and a machine without power is one that lost its disk."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from tests.simulation import virtual_loop
from tests.simulation.playing import followers, scenario, write
from tests.simulation.world import SimNode, World

FLUSH_MS = 200
SEEDS = range(6)


async def load(world: World, count: int) -> None:
    """Schedule without pause, so that what is written waits for its flush."""
    for _ in range(count):
        leader = world.leader()
        if leader is not None:
            await world.propose(leader)
        await asyncio.sleep(0.001)


def waits(node: SimNode) -> bool:
    return node.journal.flushed_index < node.journal.durable_index


async def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    loop = asyncio.get_running_loop()
    ends = loop.time() + timeout_s
    while not condition():
        assert loop.time() < ends, "it did not come about"
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("seed", SEEDS)
def test_async_power_loss_minority(seed: int) -> None:
    """One machine of three loses its power: it has no vote until it is taken in anew, and nothing is lost."""

    async def play(world: World) -> None:
        draw = random.Random(seed)
        world.flush_ms = FLUSH_MS
        for round_ in range(3):
            loading = asyncio.ensure_future(load(world, 150))
            leader = await world.until_led()
            node = leader if (seed + round_) % 2 else draw.choice(followers(world, leader))
            await until(lambda node=node: waits(node))
            await asyncio.sleep(draw.random() * 0.1)
            node.crash()
            await asyncio.sleep(draw.random())
            node.start(world.members)
            await loading
            await until(node.is_whole)
        assert world.checker.sometimes["power lost"] >= 1
        assert world.checker.sometimes["rejoined"] == world.checker.sometimes["power lost"]

    scenario(play)


def test_every_process_killed_at_once_loses_nothing() -> None:
    async def play(world: World) -> None:
        world.flush_ms = FLUSH_MS
        for _ in range(5):
            await load(world, 30)
            await until(lambda: all(waits(node) for node in world.nodes) or world.leader() is None)
            for node in world.nodes:
                node.kill()
            for node in world.nodes:
                node.start(world.members)
            await world.until_led()
        assert not world.checker.sometimes["power lost"]
        assert not world.checker.lost(world.nodes)

    scenario(play)


def test_what_is_flushed_or_at_rest_costs_no_rejoin() -> None:
    async def play(world: World) -> None:
        world.flush_ms = FLUSH_MS
        await load(world, 30)
        await asyncio.sleep(5)  # a lull: everything is flushed, and no mark is left
        for node in world.nodes:
            node.crash()
        for node in world.nodes:
            node.start(world.members)
        await write(world, 3)
        assert not world.checker.sometimes["power lost"]

    scenario(play)
