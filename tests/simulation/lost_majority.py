"""A majority that is lost: the node with the best log goes on alone, and the checks with what it has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tarry.node.recovery.recover_alone import go_alone, survey
from tarry.replication.journal.journal import Journal
from tarry.replication.raft.membership import Membership
from tests.simulation.world import World


async def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Return once it holds."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + timeout_s
    while not condition():
        assert loop.time() < ends, "it did not come about"
        await asyncio.sleep(0.001)


async def recover(world: World) -> int:
    """The node with the best log goes on alone, as an operator has it; the others come back by themselves.

    Return the last entry that is left.
    """
    logs = {node: Journal(node.disk, incarnation=1) for node in world.nodes}
    best = max(world.nodes, key=lambda node: (logs[node].last_term, logs[node].last_index))
    journal = logs[best]
    last = journal.last_index
    world.forget(last)
    found = survey(best.name, Membership(journal, world.members), journal)
    go_alone(journal, found, 0)  # without `Meet`, from which newcomers have a number, frames are of none
    best.disk.reopen()
    assert not best.disk.lost_power
    world.stay(best)
    best.start(world.members)
    await until(lambda: all(node.is_whole() for node in world.nodes))
    return last
