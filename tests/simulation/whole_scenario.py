"""A scenario of whole nodes: a fresh cluster, what is played on it, and the checks at its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import structlog

from tests.simulation import virtual_loop
from tests.simulation.model_consumer import ModelConsumer
from tests.simulation.model_producer import ModelProducer
from tests.simulation.whole_node import DISPATCH
from tests.simulation.whole_world import GROUPS, WholeWorld

Play = Callable[[WholeWorld, ModelProducer], Awaitable[None]]


def scenario(
    play: Play,
    *,
    names: int = 3,
    groups: dict[str, list[str]] = GROUPS,
    consumers: bool = True,
    begin: Callable[[WholeWorld], Awaitable[None]] | None = None,
    retention_ms: int = DISPATCH.retention_ms,
) -> WholeWorld:
    """Played on a fresh cluster that delivers; drained and checked at the end."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))

    async def run(world: WholeWorld, tasks: list[asyncio.Task[None]]) -> None:
        if begin is None:
            world.start()
        else:
            await begin(world)
        await world.until_served()
        if consumers:
            for place in (place for places in groups.values() for place in places):
                topic, name = place.split("/")
                for n in range(2):
                    consumer = ModelConsumer(world, f"{name}-{n}", topic, name, thinks_s=0.4)
                    tasks.append(asyncio.ensure_future(consumer.run()))
        await play(world, ModelProducer(world, "p"))
        if not consumers:
            tasks += [asyncio.ensure_future(consumer.run()) for consumer in world.consumers()]
        await world.drain()
        await world.changes.judge()

    async def whole() -> WholeWorld:
        world = WholeWorld(seed=1, names=names, groups=groups, retention_ms=retention_ms)
        tasks = list[asyncio.Task[None]]()
        world.answers_lost = 0.0
        asyncio.get_running_loop().set_exception_handler(world.on_error)
        try:
            await world.during(run(world, tasks))
        finally:
            for task in tasks:
                task.cancel()
            await world.close()
        return world

    return virtual_loop.run(whole())


def soon(world: WholeWorld, count: int, spread_ms: int) -> list[int]:
    now_ms = world.true_ms()
    return [now_ms + spread_ms * n // count for n in range(count)]
