"""An upgrade of a world's nodes, one at a time and now and then back, while faults go on."""

from __future__ import annotations

import asyncio
import random

from tarry.replication.state_machine import levels
from tarry.replication.state_machine.machine import Machine
from tests.simulation import faults
from tests.simulation.checker import Violation
from tests.simulation.whole_node import WholeNode
from tests.simulation.whole_world import WholeWorld

BACK_SHARE = 0.2
"""Of the steps: a node goes back to the version before, if the level still allows it."""


async def upgrade(world: WholeWorld, until: float) -> None:
    """Exchange versions until the faults end; all nodes have the later one then."""
    loop, rng = asyncio.get_running_loop(), random.Random(f"upgrade {len(world.whole)} {world.rng.random()}")
    pause_s = (until - loop.time()) / (2 * len(world.whole))
    for node in rng.sample(world.whole, len(world.whole)):
        await asyncio.sleep(rng.uniform(0, 2 * pause_s))
        await _exchange(world, node, levels.HIGHEST)
        others = [other for other in world.whole if other is not node]
        if others and any(other.applies < levels.HIGHEST for other in others) and rng.random() < BACK_SHARE:
            await asyncio.sleep(rng.uniform(0, pause_s))
            await _exchange(world, node, levels.FIRST)
            await asyncio.sleep(rng.uniform(0, pause_s))
            await _exchange(world, node, levels.HIGHEST)


async def _exchange(world: WholeWorld, node: WholeNode, applies: int) -> None:
    world.note(f"{node.name} is stopped, to be started with what applies level {applies}")
    world.checker.sometimes["version exchanged"] += 1
    node.crash()
    node.applies = applies
    await asyncio.sleep(0.05)
    faults.restart(world, node)


async def until_raised(world: WholeWorld, timeout_s: float = 10.0) -> None:
    """Return once the level is raised everywhere, and what the leader then logs applied: all nodes answer."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while not _settled(machines := [node.core.machine for node in world.whole]):
        if loop.time() - begun > timeout_s:
            raise Violation(f"V7: the level is {[(one.level, one.applied_index) for one in machines]}")
        await asyncio.sleep(0.05)
    world.counts["levels raised"] += levels.HIGHEST - levels.FIRST
    refused = {node.name: node.too_old for node in world.whole if node.too_old}
    if refused:
        raise Violation(f"L1: the level was raised beyond a member: {refused}")
    world.check_states()


def _settled(machines: list[Machine]) -> bool:
    """Return whether all have the highest level, the cluster's settings, and one applied index."""
    raised = all(one.level == levels.HIGHEST and one.queues.defaults.seeded for one in machines)
    return raised and len({one.applied_index for one in machines}) == 1
