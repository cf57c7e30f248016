"""One seed of consensus, one run: clients, faults, healing, checks."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

from tests.simulation import faults, virtual_loop
from tests.simulation.certain import ASYNC, CERTAIN, among_others, by_themselves, possible
from tests.simulation.outcome import Outcome, digest
from tests.simulation.world import LARGE, QUIET_AFTER_MS, SETTINGS, SLOWNESS, World, draw_bandwidth

ASYNC_SHARE = 0.5
"""Of the worlds: the durability becomes async, and sync again."""
FLUSH_MS = (10, 50, 200, 1_000, 5_000)
ASYNC_S, SYNC_S = 6.0, 1.0
"""How long each lasts, at most."""


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
    flushes_late = random.Random(f"flush {seed}").random() < ASYNC_SHARE
    failure: str | None = None
    try:
        await world.during(_run(world, seconds, flushes_late=flushes_late))
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


async def change_durability(world: World, until: float) -> None:
    """The cluster is async most of the time; its nodes learn of a change at once."""
    loop, rng = asyncio.get_running_loop(), random.Random(f"durability {world.draws.random()}")
    while loop.time() < until:
        world.flush_ms = rng.choice(FLUSH_MS)
        world.counts["async"] += 1
        await asyncio.sleep(rng.uniform(0, ASYNC_S))
        world.flush_ms = 0
        await asyncio.sleep(rng.uniform(0, SYNC_S))


async def _run(world: World, seconds: float, *, flushes_late: bool) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    world.start()
    plays = {**CERTAIN, **(ASYNC if flushes_late else {})}
    work = [world.client(until) for _ in range(4)] + [faults.plague(world, until) for _ in range(2)]
    certain = possible(world, plays)
    if flushes_late:
        work.append(change_durability(world, until))
    await asyncio.gather(*work, among_others(world, until, certain))
    await by_themselves(world, possible(world, CERTAIN))
    await world.converge()
