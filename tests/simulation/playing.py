"""How a scenario is played: on a fresh cluster, healed and checked at its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tarry.replication.settings import ReplicationSettings
from tests.simulation import virtual_loop
from tests.simulation.world import SETTINGS, SimNode, World

EVERY_COMMAND_AN_ENTRY = ReplicationSettings(
    entry_commands_max=1, entries_in_flight_max=1000, small_entries_in_flight_max=1000
)


def scenario(
    play: Callable[[World], Awaitable[None]], settings: ReplicationSettings = SETTINGS, *, names: int = 3
) -> World:
    """Plays it on a fresh cluster that has a leader and some entries; heals and checks at the end."""

    async def whole() -> World:
        world = World(seed=1, names=names, settings=settings)

        async def run() -> None:
            world.start()
            await write(world, 10)
            await play(world)
            await world.converge()

        await world.during(run())
        return world

    return virtual_loop.run(whole())


async def write(world: World, count: int) -> None:
    for _ in range(count):
        assert await world.propose(await world.until_led())


def followers(world: World, leader: SimNode) -> list[SimNode]:
    return [node for node in world.nodes if node is not leader]


def isolate(world: World, node: SimNode, *, noticed: bool) -> None:
    for other in world.nodes:
        if other is not node:
            world.network.cut(node.name, other.name, noticed=noticed)
            world.network.cut(other.name, node.name, noticed=noticed)


def elections(world: World) -> int:
    return len(world.checker.leaders)
