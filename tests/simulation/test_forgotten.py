"""What retention takes before a group is made is not missed; what it takes from a group that is there, is."""

from __future__ import annotations

import asyncio

import pytest

from tarry.node.leader.retention import Kept
from tarry.replication.state_machine.ready_queue import ReadyQueue
from tests.simulation.checker import Violation
from tests.simulation.model_consumer import ModelConsumer
from tests.simulation.model_producer import ModelProducer
from tests.simulation.whole_scenario import scenario, soon
from tests.simulation.whole_world import WholeWorld

RETENTION_MS = 300
GROUPS = {"a": ["a/g1", "a/g2"]}


async def until_forgotten(world: WholeWorld, producer: ModelProducer) -> None:
    await producer.schedule("a", soon(world, 20, 100))
    await asyncio.sleep(2)


def test_a_group_that_is_made_after_the_retention_is_not_promised_what_is_gone() -> None:
    world = scenario(until_forgotten, groups=GROUPS, consumers=False, retention_ms=RETENTION_MS)
    assert {group: len(gone) for group, gone in world.ledger.forgotten.items()} == {"a/g1": 20, "a/g2": 20}
    assert not world.ledger.given


def test_a_retention_that_forgets_what_a_group_has_not_had_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        consumer = asyncio.ensure_future(ModelConsumer(world, "c", "a", "g1").run())
        await asyncio.sleep(1)
        consumer.cancel()
        await until_forgotten(world, producer)

    def passed(_: Kept, __: ReadyQueue, otherwise: int) -> int:
        return otherwise

    monkeypatch.setattr(Kept, "_floor", passed)
    with pytest.raises(Violation, match=r"V4: .*: 20 of 20 not delivered: \[\('a/g1'"):
        scenario(play, groups=GROUPS, consumers=False, retention_ms=RETENTION_MS)


def test_a_retention_that_is_over_too_soon_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_of_it(queue: ReadyQueue, *_: object) -> int:
        return queue.units

    monkeypatch.setattr(ReadyQueue, "find_released", all_of_it)
    with pytest.raises(Violation, match=r"V4: .*: 40 of 20 not delivered"):
        scenario(until_forgotten, groups=GROUPS, consumers=False)
