"""Faults that no seed is without, beside those that are drawn: each comes about once at least.

A seed of a few seconds draws some eight of forty kinds. What years bring for certain is therefore played
again, at drawn moments, until it has come about: a change of members, a full disk, a journal that rots, a
disk that is lost, a clock that drifts away. Rot of the state and upgrades are plays of their own (`rot`,
`upgrade`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from tests.simulation import faults

if TYPE_CHECKING:
    from tests.simulation.world import World

W = TypeVar("W", bound="World")

TRIES = 10


async def among_others(world: W, until: float, plays: Mapping[str, Callable[[W], Awaitable[None]]]) -> None:
    """Play each, by the name under which the world counts it, until it has come about or time is over."""
    loop = asyncio.get_running_loop()

    async def until_seen(name: str, play: Callable[[W], Awaitable[None]]) -> None:
        await asyncio.sleep(world.rng.uniform(0.0, (until - loop.time()) / 2))
        while loop.time() < until and not world.seen(name):
            await play(world)
            await asyncio.sleep(world.rng.uniform(0.05, 0.2))

    await asyncio.gather(*(until_seen(name, play) for name, play in plays.items()))


async def by_themselves(world: W, plays: Mapping[str, Callable[[W], Awaitable[None]]]) -> None:
    """Play what has not come about, once the other faults are over: some need all nodes as members."""
    for name, play in plays.items():
        for _ in range(TRIES):
            if world.seen(name):
                break
            await world.mend()
            await world.until_sound()
            await play(world)
            await asyncio.sleep(world.rng.uniform(0.05, 0.2))


async def leave_and_return(world: World) -> None:
    """A member goes and comes back; both may fail."""
    for _ in range(2):
        await faults.change_members(world)
        await asyncio.sleep(world.rng.uniform(0.0, 0.4))


CERTAIN: Mapping[str, Callable[[World], Awaitable[None]]] = {
    "members changed": leave_and_return,
    "disks full": faults.fill_disk,
    "rotten journals": faults.rot_journal,
    "emptied": faults.empty,
}
ASYNC: Mapping[str, Callable[[World], Awaitable[None]]] = {"power lost": faults.lose_power}
"""Where the durability is async."""
NODES_MIN = {
    **{"members changed": 2, "rotten journals": 3, "emptied": 3, "drifted away": 3, "rotten": 2},
    "power lost": 3,
}
"""Else there is nobody to go on, or to take from, or one wrong clock of two."""


def possible(
    world: W, plays: Mapping[str, Callable[[W], Awaitable[None]]]
) -> dict[str, Callable[[W], Awaitable[None]]]:
    """Return the plays for which a world has nodes enough."""
    return {name: play for name, play in plays.items() if len(world.nodes) >= NODES_MIN.get(name, 1)}
