"""Scenarios drawn from a seed: faults one after another and over one another.

What is drawn follows from the seed alone; when exactly it happens follows from the machine, so a replay is
the same plan, not the same microsecond.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine

from tarry.chaos.faults.catalogue import FAULTS, at_once, equip, lacking, possible
from tarry.chaos.faults.clocks import INEXACT_MS, to_the_next_hour_ms
from tarry.chaos.run import Run
from tarry.chaos.scenario import SHORT_JOURNAL, Scenario

STEPS = range(4, 8)
LENGTHS_S = (0.1, 0.3, 0.6, 1, 2.5)
ALONE = frozenset({"failing fsync"})
"""A node that is cut off or frozen meanwhile syncs nothing, and so does not end."""

Step = Callable[[Run, random.Random], Coroutine[None, None, None]]


async def _crash_all(run: Run, chance: random.Random) -> None:
    await run.crash_all(chance.random())


async def _transfer(run: Run, chance: random.Random) -> None:
    await run.transfer(chance.choice(("", *run.names)))


async def _restart(run: Run, chance: random.Random) -> None:
    name = chance.choice(run.names)
    async with run.disturbed("restart", name):
        await run.cluster.restart(name)


async def _fall_behind(run: Run, chance: random.Random) -> None:
    """Have a follower miss much, and take the leader's state where the journal is short."""
    name = (await run.followers())[0]
    async with run.disturbed("behind", name):
        run.cluster.kill(name)
        await run.during(0.5 + chance.random())
        run.cluster.start(name)


async def _join(run: Run, chance: random.Random) -> None:
    """Add a node; only once in a run."""
    name = f"n{len(run.names) + 1}"
    if name in ("n4", "n6"):
        node = run.cluster.newcomer(name)
        equip(run, node)
        run.cluster.start(name)
        async with run.disturbed("join", name):
            await run.added(node)


WHOLE: dict[str, Step] = {
    "crash of all": _crash_all,
    "transfer": _transfer,
    "restart": _restart,
    "behind": _fall_behind,
    "join": _join,
}


def _fault(name: str) -> Step:
    async def step(run: Run, chance: random.Random) -> None:
        if name in possible():
            victim = await run.leader() if chance.random() < 0.5 else chance.choice(run.names)
            await FAULTS[name].inject(run, victim, chance.choice(LENGTHS_S))

    return step


def explored(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    chance = random.Random(seed)
    kinds = [*FAULTS, *FAULTS, *WHOLE]
    plan = [_drawn(chance, kinds) for _ in range(chance.choice(STEPS))]
    at_an_hour, short, nodes = chance.random() < 0.2, chance.random() < 0.5, chance.choice((3, 3, 3, 5))

    async def play(run: Run) -> None:
        for number, together in enumerate(plan):
            steps = [WHOLE.get(name) or _fault(name) for name in together]
            await at_once(
                *(step(run, random.Random(f"{seed} {number} {place}")) for place, step in enumerate(steps))
            )
            if chance.random() < 0.6:
                await run.serving()
            await run.during(chance.random())

    return Scenario(
        name=f"explore-{seed}",
        play=play,
        what=f"From seed {seed}: {', '.join(' with '.join(together) for together in plan)}"
        f"{', as the hour changes' if at_an_hour else ''}{', short journals' if short else ''}.",
        nodes=nodes,
        settings=SHORT_JOURNAL if short else {},
        prepare=equip,
        ahead_ms=to_the_next_hour_ms if at_an_hour and "clock" not in lacking() else lambda: 0,
        patience_ms=6_000,
        travel_ms=4_000,
        tolerance_ms=INEXACT_MS if any("clock" in name for together in plan for name in together) else 0,
    )


def _drawn(chance: random.Random, kinds: list[str]) -> list[str]:
    """Return one step: something, and often something else or a transfer at the same time."""
    first, second = chance.choice(kinds), chance.choice([*kinds, *["transfer"] * 8])
    if chance.random() < 0.6 or {first, second} & ALONE or first == second or {first, second} <= WHOLE.keys():
        return [first]
    return [first, second]
