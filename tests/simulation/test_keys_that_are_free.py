"""A key that is asked for again within its window is one message; behind it, it may be another."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

import pytest

from tarry.node.keys.used_keys import Name, Used, UsedKeys
from tarry.proto.ledger.schema import Kind
from tests.simulation.checker import Violation
from tests.simulation.model_producer import ModelProducer
from tests.simulation.upgrade import until_raised
from tests.simulation.whole_scenario import scenario
from tests.simulation.whole_world import HOUR_MS, WholeWorld

WINDOW_MS = 1_000
GROUPS = {"a": ["a/g1"]}


async def begin(world: WholeWorld) -> None:
    """At the level that takes idempotency keys."""
    world.finish = "auto"
    world.start()
    await world.until_served()
    await until_raised(world)


async def scheduled_unheard(
    world: WholeWorld, producer: ModelProducer, cut_s: float, asleep_ms: int = 0
) -> list[bytes]:
    """Schedule a message that is due at once, by a key, and hear no answer for a while; then ask again."""
    world.answers_lost = 1.0
    asking = asyncio.ensure_future(producer.schedule("a", [world.true_ms()], by_key=True))
    while not world.rows.messages["a", Kind.SCHEDULED]:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    world.cuts.update((producer._name, node.name) for node in world.whole)
    await asyncio.sleep(cut_s)
    world.asleep_ms += asleep_ms
    world.cuts.clear()
    world.answers_lost = 0.0
    return await asking


@pytest.mark.parametrize(("cut_s", "asleep_ms"), [(2.0, 0), (0.1, 3 * HOUR_MS)])
def test_a_key_that_is_asked_for_again_behind_its_window_may_be_a_second_message(
    cut_s: float, asleep_ms: int
) -> None:
    """The outcome of the first request is not known, its message was released, and the window is over."""

    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        assert await scheduled_unheard(world, producer, cut_s, asleep_ms) == []

    world = scenario(play, groups=GROUPS, begin=begin, retention_ms=WINDOW_MS)
    first, second = world.rows.messages["a", Kind.SCHEDULED]
    assert first != second
    bodies = {world.ledger.id_of(label) for _, label in world.ledger.given}
    assert bodies == {first, second}


def test_a_key_that_is_asked_for_again_within_its_window_is_one_message() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        assert await scheduled_unheard(world, producer, 0.1) == [b"p/1/0"]
        assert producer._asked_again
        await producer.schedule_again()

    world = scenario(play, groups=GROUPS, begin=begin, retention_ms=WINDOW_MS)
    assert len(world.rows.messages["a", Kind.SCHEDULED]) == 1
    assert world.ledger.counts == {"deliveries": 1}


def test_a_second_message_of_a_key_within_its_window_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def finds_nothing(_: UsedKeys, __: Collection[Name]) -> Mapping[Name, Used]:
        return {}

    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        await scheduled_unheard(world, producer, 0.1)

    monkeypatch.setattr(UsedKeys, "find", finds_nothing)
    with pytest.raises(Violation, match="L1: b'p/1/0' is both"):
        scenario(play, groups=GROUPS, begin=begin, retention_ms=WINDOW_MS)


def test_another_answer_to_a_key_within_its_window_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def finds_nothing(_: UsedKeys, __: Collection[Name]) -> Mapping[Name, Used]:
        return {}

    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        await producer.schedule("a", [world.true_ms()], by_key=True)
        monkeypatch.setattr(UsedKeys, "find", finds_nothing)
        await producer.schedule_again()

    with pytest.raises(Violation, match=r"L14: .* were scheduled as"):
        scenario(play, groups=GROUPS, begin=begin, retention_ms=WINDOW_MS)
