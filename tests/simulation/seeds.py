"""One seed, one run: clients, faults, healing, checks."""

from __future__ import annotations

import asyncio
import hashlib
import random
from dataclasses import dataclass, field

from tests.simulation import faults, virtual_loop
from tests.simulation.world import World


@dataclass(frozen=True, slots=True)
class Outcome:
    seed: int
    failure: str | None
    acknowledged: int
    terms: int
    faults: int
    history_hash: str
    sometimes: dict[str, int] = field(default_factory=dict)
    history: tuple[str, ...] = ()


def simulate(seed: int, seconds: float = 20.0) -> Outcome:
    """Equal seeds give equal outcomes, to the last event."""
    return virtual_loop.run(_simulate(seed, seconds))


async def _simulate(seed: int, seconds: float) -> Outcome:
    world = World(seed, names=random.Random(seed).choice([3, 3, 5]))
    failure: str | None = None
    try:
        await world.during(_run(world, seconds))
    except Exception as error:  # noqa: BLE001 - a finding, to be told with its seed
        failure = f"{type(error).__name__}: {error}"
    checker = world.checker
    marks = ("crash", "isolate", "cut", "flap", "pause", "Weather", "the disk", "transfer from", "syncs")
    text = "\n".join([*world.history, str(sorted(checker.acknowledged.items())), str(world.network.frames)])
    return Outcome(
        seed,
        failure,
        len(checker.acknowledged),
        len(checker.leaders),
        sum(any(mark in line for mark in marks) for line in world.history),
        hashlib.sha256(text.encode()).hexdigest()[:16],
        dict(checker.sometimes),
        tuple(world.history) if failure else (),
    )


async def _run(world: World, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    world.start()
    work = [world.client(until) for _ in range(4)] + [faults.plague(world, until) for _ in range(2)]
    await asyncio.gather(*work)
    await world.converge()
