"""A node whose disk is lost: it must not vote, and comes back as a newcomer (see `node.rejoining`)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tarry.node.recovery.rejoin import Phase, leaving_incarnation
from tarry.replication.errors import MembershipRefused, NotLeader, Unknown
from tarry.replication.status import loses_quorum

if TYPE_CHECKING:
    from tests.simulation.world import SimNode, World

RETRY_S = 0.1


async def come_back(world: World, node: SimNode) -> None:
    """Leave and join, as a node does that was told to rejoin; the node may crash meanwhile."""
    await _until_done(world, node, Phase.LEAVING)
    node.phase = Phase.JOINING
    if not node.alive:
        node.start(world.members)
    await _until_done(world, node, Phase.JOINING)
    node.phase = None
    world.note(f"{node.name} is a member again")
    world.checker.sometimes["rejoined"] += 1


async def _until_done(world: World, node: SimNode, phase: Phase) -> None:
    while True:
        leader = world.leader()
        # It may lead itself, where it was added and only the answer was lost: then it is told so by itself.
        if leader is not None and leader.running.is_set():
            try:
                if await asyncio.wait_for(_ask(leader, node, phase, world.members[node.name]), 4.0):
                    return
            except (MembershipRefused, NotLeader, Unknown, TimeoutError) as refused:
                world.note(f"{node.name} is {phase.value}, not yet: {refused!r}")
        await asyncio.sleep(RETRY_S)


async def _ask(leader: SimNode, node: SimNode, phase: Phase, address: str) -> bool:
    """As the leader's MembershipService answers; return whether it is done."""
    status = leader.driver.status()
    if phase is Phase.LEAVING:
        if node.name in status.members and loses_quorum(status, node.name):
            return False
        await leader.driver.leave(node.name, leaving_incarnation(node.disk, node.name))
    else:
        await leader.driver.join(node.name, address, 3000, node.journal.incarnation)
    return True
