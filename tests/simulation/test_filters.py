"""A group that filters by properties, in whole nodes: leaders die, and it is given what matches."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.simulation.ledger import is_red
from tests.simulation.model_producer import ModelProducer
from tests.simulation.whole_scenario import scenario
from tests.simulation.whole_world import WholeWorld

GROUPS = {"a": ["a/g1", "a/red"]}


async def begin(world: WholeWorld) -> None:
    world.by_properties = True
    world.start()


@pytest.mark.parametrize("seed", range(3))
def test_over_leaders_that_die_a_group_is_given_what_matches_and_no_other(seed: int) -> None:
    chance = random.Random(seed)
    labels: list[bytes] = []

    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        for round_ in range(chance.randint(2, 3)):
            now_ms = world.true_ms()
            dues_ms = [now_ms + chance.randint(0, 1_500) for _ in range(60)]
            labels.extend(await producer.schedule("a", dues_ms, key="k" if round_ == 1 else ""))
            await asyncio.sleep(chance.uniform(0.3, 1.5))
            leader = await world.until_served()
            leader.crash()
            await world.mend()

    world = scenario(play, groups=GROUPS, begin=begin)
    given = {label for group, label in world.ledger.given if group == "a/red"}
    assert given == {label for label in labels if is_red(label)}
    assert given
