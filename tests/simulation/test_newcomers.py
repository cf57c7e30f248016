"""Whom a newcomer takes for the members, and for whom a journal speaks."""

from __future__ import annotations

import asyncio

import pytest

from tarry.replication.errors import MembershipRefused
from tests.simulation.playing import followers, scenario, write
from tests.simulation.world import SimNode, World


def test_a_newcomer_counts_majorities_by_the_members_and_not_by_a_list_that_lacks_some() -> None:
    """It knew of itself and one founder: these two elected it, and the other two had no say."""

    async def play(world: World) -> None:
        leader = await world.until_led()
        newcomer = SimNode(world, "n4")
        world.nodes.append(newcomer)
        newcomer.start({leader.name: world.members[leader.name]})
        await leader.driver.add(newcomer.name, "new", 3000)
        world.members[newcomer.name] = "new"
        await write(world, 5)
        assert newcomer.driver.status().members.keys() == world.members.keys()
        for _ in range(2):
            assert newcomer.driver._replica.consensus.state.voters == world.members.keys() - {newcomer.name}
            newcomer.crash()
            newcomer.start(world.members)
            await write(world, 5)
        await leader.driver.transfer(newcomer.name, 2000)
        others = [node for node in world.nodes if node not in (leader, newcomer)]
        for node in others:
            node.crash()
        await asyncio.sleep(3)
        assert world.leader() is None
        for node in others:
            node.start(world.members)
        await write(world, 5)

    scenario(play)


def test_a_journal_that_was_replaced_does_not_speak_for_the_member_of_its_name() -> None:
    """Its machine, which boots once more, removed the one that had replaced it."""

    async def play(world: World) -> None:
        leader = await world.until_led()
        replaced = followers(world, leader)[0]
        before = replaced.journal.incarnation
        await leader.driver.remove(replaced.name)
        replaced.crash()
        replaced.lose_disk()
        world.rejoin(replaced)
        await asyncio.sleep(3)
        assert replaced.phase is None
        with pytest.raises(MembershipRefused, match="was replaced"):
            await leader.driver.leave(replaced.name, before)
        with pytest.raises(MembershipRefused, match="was replaced"):
            await leader.driver.join(replaced.name, world.members[replaced.name], 2000, before)
        await leader.driver.join(
            replaced.name, world.members[replaced.name], 2000, replaced.journal.incarnation
        )
        assert replaced.name in leader.driver.status().members
        await leader.driver.leave(replaced.name, replaced.journal.incarnation)
        await leader.driver.leave(replaced.name, before)  # it is none: nothing is left to be said for
        assert replaced.name not in leader.driver.status().members
        await leader.driver.add(replaced.name, "again", 2000)

    scenario(play)


def test_a_founder_leaves_whatever_journal_it_says_that_it_has() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        gone = followers(world, leader)[0]
        await leader.driver.leave(gone.name, gone.journal.incarnation)
        assert gone.name not in leader.driver.status().members
        await leader.driver.add(gone.name, "again", 2000)

    scenario(play)
