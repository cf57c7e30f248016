"""A group's delay in whole nodes: leaders die, clocks differ, and nothing is early or lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from tarry.node.delivery.batch import DeliveryBatch
from tests.simulation.model_producer import ModelProducer
from tests.simulation.test_delivery_rate import set_policy
from tests.simulation.test_levels import begin, levels_of, until
from tests.simulation.whole_node import RATE_ERROR
from tests.simulation.whole_scenario import scenario
from tests.simulation.whole_world import WholeWorld

CLOCKS_MS = 20
"""By which cluster time may be ahead of true time here."""


class Given:
    """First deliveries to one group: by offset of the topic's queue, when, by true time, and how long after
    the message was due."""

    def __init__(self, world: WholeWorld, topic: str, group: str) -> None:
        self.waited_ms: dict[int, float] = {}
        told: Callable[..., Any] = world.rows.delivered

        def delivered(machine: Any, batch: DeliveryBatch, of: str, to: str) -> None:
            if (of, to) == (topic, group) and batch.order_key is not None:
                for unit in batch.units:
                    waited_ms = world.true_ms() - int(unit["due_ms"])
                    self.waited_ms.setdefault(int(unit["offset"]), waited_ms)
            told(machine, batch, of, to)

        setattr(world.rows, "delivered", delivered)  # noqa: B010 - a method of one object


@pytest.mark.parametrize("seed", range(4))
def test_over_leaders_that_die_a_delayed_group_gets_each_message_and_none_early(seed: int) -> None:
    chance = random.Random(seed)
    delay_ms = chance.choice((700, 1_500, 3_000))
    found: dict[str, Given] = {}
    units: list[int] = []

    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        await until(world, lambda: levels_of(world) == [2, 2, 2])
        await set_policy(world, "a", "g1", delay_ms=delay_ms)
        for group in ("g1", "g2"):
            found[group] = Given(world, "a", group)
        for _ in range(chance.randint(2, 3)):
            now_ms = world.true_ms()
            await producer.schedule("a", [now_ms + chance.randint(0, 1_500) for _ in range(60)])
            await asyncio.sleep(chance.uniform(0.3, 1.5))
            leader = await world.until_served()
            leader.crash()
            await world.mend()
        await world.until_served()
        await asyncio.sleep(2 + delay_ms / 1_000 + 4)
        leader = await world.until_served()
        units.append(leader.core.machine.queues.of("a").units)

    scenario(play, begin=begin("auto"))
    delayed, free = found["g1"].waited_ms, found["g2"].waited_ms
    assert len(delayed) == units[0] > 0
    assert min(delayed.values()) >= delay_ms * (1 - 2 * RATE_ERROR) - CLOCKS_MS
    assert min(free.values()) < delay_ms
