"""Runs that nobody thought of: faults drawn from a seed, one after another and over one another.

What is drawn follows from the seed alone; when exactly it happens follows from the machine, so a replay is
the same plan, not the same microsecond.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from tarry.chaos.faults.network import deaf, isolated, mute
from tarry.chaos.run import Run
from tarry.chaos.scenario import Scenario

STEPS = range(4, 8)
TOXICS: tuple[tuple[str, dict[str, int]], ...] = (
    ("latency", {"latency": 40, "jitter": 30}),
    ("latency", {"latency": 5, "jitter": 5}),
    ("bandwidth", {"rate": 128}),
    ("slicer", {"average_size": 60, "size_variation": 30, "delay": 10}),
    ("reset_peer", {"timeout": 400}),
    ("timeout", {"timeout": 0}),
)


async def _crash(run: Run, chance: random.Random) -> None:
    await run.crash(chance.choice(run.names), away_s=chance.random() * 2)


async def _crash_leader(run: Run, chance: random.Random) -> None:
    await run.crash(await run.leader(), away_s=chance.random() * 2)


async def _crash_all(run: Run, chance: random.Random) -> None:
    async with run.disturbed("crash of all"):
        for name in run.names:
            run.cluster.kill(name)
        await run.during(chance.random())
        run.cluster.start()
        await run.serving()


async def _freeze(run: Run, chance: random.Random) -> None:
    name = chance.choice(run.names)
    async with run.disturbed("freeze", name):
        run.cluster.pause(name)
        await run.during(chance.choice((0.1, 0.3, 0.6, 2.5)))
        run.cluster.resume(name)


async def _partition(run: Run, chance: random.Random) -> None:
    name = chance.choice(run.names)
    kind = chance.choice((isolated, deaf, mute))
    async with run.disturbed(f"{kind.__name__} {name}", loose=True):
        run.cluster.links.cut(kind(name, run.names))
        await run.during(chance.choice((0.2, 1, 3)))
        run.cluster.links.mend(kind(name, run.names))


async def _spoil(run: Run, chance: random.Random) -> None:
    links, name = run.cluster.links, chance.choice(run.names)
    kind, attributes = chance.choice(TOXICS)
    async with run.disturbed(f"{kind} {name}", loose=True):
        links.spoil(isolated(name, run.names, clients=chance.random() < 0.3), kind, "", **attributes)
        await run.during(2)
        links.heal()


async def _transfer(run: Run, chance: random.Random) -> None:
    await run.transfer(chance.choice(("", *run.names)))


async def _restart(run: Run, chance: random.Random) -> None:
    name = chance.choice(run.names)
    async with run.disturbed("restart", name):
        await run.cluster.restart(name)


STEP: tuple[Callable[[Run, random.Random], Awaitable[None]], ...] = (
    _crash, _crash_leader, _crash_all, _freeze, _freeze, _partition, _partition, _spoil, _spoil, _transfer,
    _restart,
)  # fmt: skip


def explored(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    chance = random.Random(seed)
    steps = [chance.choice(STEP) for _ in range(chance.choice(STEPS))]
    together = chance.random() < 0.3

    async def play(run: Run) -> None:
        for number, step in enumerate(steps):
            doing = [step(run, random.Random(f"{seed} {number}"))]
            if together and step is not _transfer:
                doing.append(_transfer(run, random.Random(f"{seed} {number} transfer")))
            await asyncio.gather(*doing)
            if chance.random() < 0.6:
                await run.serving()
            await run.during(chance.random())

    names = ", ".join(step.__name__.strip("_").replace("_", " ") for step in steps)
    return Scenario(
        name=f"explore-{seed}", play=play, what=f"From seed {seed}: {names}.",
        nodes=chance.choice((3, 3, 3, 5)), patience_ms=6_000, travel_ms=4_000,
    )  # fmt: skip
