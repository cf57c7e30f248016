"""Processors that need time for what they do, and links that need time for what they carry."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation.playing import EVERY_COMMAND_AN_ENTRY, elections, followers, scenario, write
from tests.simulation.world import LARGE, World


def test_a_backlog_to_apply_does_not_silence_a_new_leader() -> None:
    """1.2 s of it, four times the time after which another is elected."""

    async def play(world: World) -> None:
        leader = await world.until_led()
        await asyncio.gather(*(world.propose(leader) for _ in range(400)))
        world.set_slowness(50)
        for node in world.nodes:
            node.crash()
        for node in world.nodes:
            node.start(world.members)
        before = elections(world)
        await world.until_led()
        await asyncio.sleep(2)
        assert elections(world) == before + 1

    scenario(play, EVERY_COMMAND_AN_ENTRY)


def test_a_node_that_is_busy_for_longer_than_its_lease_does_not_serve_when_it_is_done() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        leader.processor.slowness = 1.0
        leader.processor.charge(2e6)
        await asyncio.sleep(1)
        assert (await world.until_led(but=leader.name)) is not leader
        await write(world, 3)

    scenario(play)


def test_bulk_over_slow_links_keeps_its_leader() -> None:
    async def play(world: World) -> None:
        before = elections(world)
        world.network.bytes_per_s = 2e6
        leader = await world.until_led()

        async def client(name: int) -> None:
            for n in range(15):
                command = b"%d/%d" % (name, n) + bytes(500_000)
                assert await asyncio.wait_for(leader.driver.propose(command), 60)

        await asyncio.gather(*map(client, range(4)))
        assert elections(world) == before

    scenario(play, LARGE)


def test_a_removal_that_waits_for_a_lost_answer_to_a_large_append_is_committed_in_the_end() -> None:
    """The append is taken for lost only after the time that a slow link could need for it."""

    async def play(world: World) -> None:
        world.large = True
        leader = await world.until_led()
        lagging, removed = followers(world, leader)
        world.network.cut(lagging.name, leader.name, noticed=False)
        assert await leader.driver.propose(b"large" + bytes(500_000))
        world.network.heal()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(leader.driver.remove(removed.name), 0.5)
        assert removed.name not in leader.driver.status().members

    scenario(play, LARGE)
