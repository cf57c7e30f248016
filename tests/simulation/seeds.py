"""One seed of consensus, one run: clients, faults, healing, checks."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

from tests.simulation import faults, virtual_loop
from tests.simulation.certain import CERTAIN, among_others, by_themselves, possible
from tests.simulation.outcome import Outcome, digest
from tests.simulation.world import LARGE, QUIET_AFTER_MS, SETTINGS, SLOWNESS, World, draw_bandwidth


def simulate(seed: int, seconds: float = 20.0) -> Outcome:
    """`seconds`: how long there are faults."""
    return virtual_loop.run(_simulate(seed, seconds))


async def _simulate(seed: int, seconds: float) -> Outcome:
    draw = random.Random(seed)
    names = draw.choice([1, 2, 3, 3, 3, 4, 5, 5])
    quiet_after_ms, slowness, bytes_per_s = (
        draw.choice(QUIET_AFTER_MS),
        draw.choice(SLOWNESS),
        draw_bandwidth(draw),
    )
    settings = replace(LARGE if bytes_per_s else SETTINGS, quiet_after_ms=quiet_after_ms)
    world = World(seed, names, settings=settings, slowness=slowness)
    world.network.bytes_per_s, world.large = bytes_per_s, bytes_per_s is not None
    asyncio.get_running_loop().set_exception_handler(world.on_error)
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
        digest([*world.history, sorted(checker.acknowledged.values()), world.network.frames]),
        world.counted(),
        tuple(world.history) if failure else (),
    )


async def _run(world: World, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    world.start()
    work = [world.client(until) for _ in range(4)] + [faults.plague(world, until) for _ in range(2)]
    certain = possible(world, CERTAIN)
    await asyncio.gather(*work, among_others(world, until, certain))
    await by_themselves(world, certain)
    await world.converge()
