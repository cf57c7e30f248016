"""One seed of consensus, one run: clients, faults, healing, checks."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

from tests.simulation import faults, virtual_loop
from tests.simulation.outcome import Outcome, digest
from tests.simulation.world import QUIET_AFTER_MS, SETTINGS, World


def simulate(seed: int, seconds: float = 20.0) -> Outcome:
    """`seconds`: how long there are faults."""
    return virtual_loop.run(_simulate(seed, seconds))


async def _simulate(seed: int, seconds: float) -> Outcome:
    draw = random.Random(seed)
    names = draw.choice([1, 2, 3, 3, 3, 4, 5, 5])
    world = World(seed, names, settings=replace(SETTINGS, quiet_after_ms=draw.choice(QUIET_AFTER_MS)))
    failure: str | None = None
    try:
        await world.during(_run(world, seconds))
    except Exception as error:  # noqa: BLE001 - a finding, to be told with its seed
        failure = f"{type(error).__name__}: {error}"
    checker = world.checker
    return Outcome(
        "consensus",
        seed,
        failure,
        len(checker.acknowledged),
        len(checker.lost(world.nodes)),
        asyncio.get_running_loop().time(),
        digest([*world.history, sorted(checker.acknowledged.items()), world.network.frames]),
        world.counted(),
        tuple(world.history) if failure else (),
    )


async def _run(world: World, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    world.start()
    work = [world.client(until) for _ in range(4)] + [faults.plague(world, until) for _ in range(2)]
    await asyncio.gather(*work)
    await world.converge()
