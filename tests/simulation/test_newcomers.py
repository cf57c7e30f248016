"""Whom a newcomer takes for the members, and for whom a journal speaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from tarry.node.recovery.rejoin import leaving_incarnation
from tarry.proto.tarry_peer_pb2 import PeerFrame
from tarry.replication.errors import MembershipRefused, Unknown
from tests.simulation.playing import followers, isolate, scenario, write
from tests.simulation.world import SimNode, World


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - in virtual time
        await asyncio.sleep(0.0001)


@pytest.mark.parametrize("names_itself", [False, True])
def test_a_newcomer_counts_majorities_by_the_members_and_not_by_a_list_that_lacks_some(
    names_itself: bool,
) -> None:
    """It knew of itself and one founder: these two elected it, and the other two had no say.

    Where it names itself, it begins as a founder does that is asked nothing.
    """

    async def play(world: World) -> None:
        leader = await world.until_led()
        newcomer = SimNode(world, "n4")
        world.nodes.append(newcomer)
        itself = {newcomer.name: "new"} if names_itself else {}
        newcomer.start({leader.name: world.members[leader.name], **itself})
        await asyncio.sleep(1)
        await leader.driver.add(newcomer.name, "new", 3000)
        world.members[newcomer.name] = "new"
        await write(world, 5)
        assert newcomer.driver.status().members.keys() == world.members.keys()
        for _ in range(2):
            assert newcomer.driver._replica.consensus.state.voters == world.members.keys() - {newcomer.name}
            newcomer.crash()
            newcomer.start(world.members)
            await write(world, 5)
        await asyncio.sleep(0.5)
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


@pytest.mark.parametrize("has_the_state", [False, True])
def test_a_member_whose_disk_was_emptied_leaves_for_the_journal_before(has_the_state: bool) -> None:
    """It took the state from its leader, and then said that it was the member."""

    async def play(world: World) -> None:
        leader = await world.until_led()
        emptied = SimNode(world, "n4")
        world.nodes.append(emptied)
        emptied.start(world.members)
        await leader.driver.add(emptied.name, "new", 3000)
        await write(world, 5)
        emptied.lose_disk()
        if has_the_state:
            await write(world, 200)
            for node in world.nodes:
                node.take_checkpoint()
            await asyncio.sleep(1)
            await write(world, 5)
        emptied.start(world.members)
        await asyncio.sleep(3)
        assert (emptied.journal.last_index > 1) == has_the_state
        incarnation = leaving_incarnation(emptied.disk, emptied.name)
        assert incarnation == 0
        await leader.driver.leave(emptied.name, incarnation)
        assert emptied.name not in leader.driver.status().members
        emptied.crash()
        world.nodes.remove(emptied)

    scenario(play)


@pytest.mark.parametrize("cut_off", [False, True])
def test_a_join_that_is_asked_for_again_is_answered_once_it_is_committed(cut_off: bool) -> None:
    """Where another leader cuts its entry off, neither is told that it is done."""

    async def play(world: World) -> None:
        leader = await world.until_led()
        newcomer = SimNode(world, "n4")
        world.nodes.append(newcomer)
        newcomer.start(world.members)
        carry, slow = world.network.carry, False

        def held(sender: str, receiver: str, frame: bytes) -> None:
            is_slow = slow and sender == leader.name and receiver != newcomer.name
            if not (is_slow and PeerFrame.FromString(frame).bulk):
                carry(sender, receiver, frame)

        world.network.carry = held  # type: ignore[method-assign]
        join = partial(leader.driver.join, newcomer.name, "new", 3000, newcomer.journal.incarnation)
        first = asyncio.ensure_future(join())
        await until(lambda: newcomer.name in leader.driver._membership_changes.taught)
        slow = True  # what has entries; heartbeats pass
        await until(lambda: newcomer.name in leader.driver.status().members)
        again = asyncio.ensure_future(join())
        await asyncio.sleep(0.5)
        assert not first.done()
        assert not again.done()
        if cut_off:
            isolate(world, leader, noticed=False)
            await asyncio.sleep(2)
            world.network.heal()
            for answer in (first, again):
                with pytest.raises(Unknown):
                    await asyncio.wait_for(answer, 5)
            newcomer.crash()
            world.nodes.remove(newcomer)
            return
        slow = False
        await asyncio.wait_for(asyncio.gather(first, again), 3)
        world.members[newcomer.name] = "new"

    scenario(play)


def test_a_founder_leaves_whatever_journal_it_says_that_it_has() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        gone = followers(world, leader)[0]
        await leader.driver.leave(gone.name, gone.journal.incarnation)
        assert gone.name not in leader.driver.status().members
        await leader.driver.add(gone.name, "again", 2000)

    scenario(play)
