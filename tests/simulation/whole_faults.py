"""What goes wrong with whole nodes: all that goes wrong with consensus, and clocks, checkpoints, sleep."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from tests.simulation import faults
from tests.simulation.whole_node import WholeNode
from tests.simulation.whole_world import HOUR_MS, WholeWorld
from tests.simulation.world import World

Fault = Callable[[WholeWorld], Awaitable[None]]


async def jump_clock(world: WholeWorld) -> None:
    """Of the one node whose clock is wrong."""
    node, rng = world.wrong, world.rng
    node.wall.ahead_ms = rng.choice((-1, 1)) * rng.choice(
        (0, 3_000, 60_000, 2 * HOUR_MS, rng.randrange(20_000))
    )
    world.note(f"the clock of {node.name} is {node.wall.ahead_ms} ms ahead")
    await asyncio.sleep(rng.uniform(0.1, 3.0))


async def sleep_all(world: WholeWorld) -> None:
    """The machines are suspended and wake up together."""
    asleep_ms = world.rng.choice((500, 5_000, 30_000, HOUR_MS))
    world.note(f"sleep for {asleep_ms} ms")
    world.asleep_ms += asleep_ms
    world.counts["asleep_ms"] += asleep_ms


async def crash_while_it_writes(world: WholeWorld) -> None:
    """A checkpoint is under way."""
    node = cast(WholeNode, world.leader() or world.rng.choice(world.nodes))
    node.take_checkpoint()
    await asyncio.sleep(world.rng.uniform(0.0, 0.004))
    world.note(f"crash {node.name} in its checkpoint")
    node.crash()
    await asyncio.sleep(world.rng.uniform(0.0, 1.0))
    faults.restart(world, node)


FAULTS: tuple[Callable[[World], Awaitable[None]] | Fault, ...] = (
    *faults.FAULTS,
    jump_clock,
    jump_clock,
    jump_clock,
    sleep_all,
    crash_while_it_writes,
    crash_while_it_writes,
)


async def plague(world: WholeWorld, until: float) -> None:
    """One stream of faults; several may run at once."""
    loop = asyncio.get_running_loop()
    while loop.time() < until:
        await asyncio.sleep(world.rng.uniform(0.05, 1.0))
        if world.rng.random() < 0.75:
            world.counts["faults"] += 1
            await world.rng.choice(FAULTS)(world)
