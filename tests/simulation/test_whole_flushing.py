"""Whole nodes with async durability: losses of power, and what a state may not be ahead of."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from functools import partial

import pytest

from tarry.proto import tarry_producer_pb2 as pb
from tarry.proto.message_id import MessageId
from tarry.proto.tarry_message_pb2 import DURABILITY_ASYNC
from tests.simulation.durabilities import set_durability
from tests.simulation.ledger import Id
from tests.simulation.lost_majority import recover
from tests.simulation.model_producer import ModelProducer
from tests.simulation.upgrade import until_raised
from tests.simulation.whole_node import WholeNode
from tests.simulation.whole_scenario import scenario, soon
from tests.simulation.whole_world import WholeWorld

FLUSH_MS = 10_000
"""Longer than the scenarios: what they write waits."""

LATER_MS = 15_000


async def begin_async(world: WholeWorld, flush_ms: int = FLUSH_MS) -> None:
    world.finish = "auto"
    world.start()
    await world.until_served()
    await until_raised(world)
    await world.until_served()
    assert await set_durability(world, DURABILITY_ASYNC, flush_ms)


def waits(node: WholeNode) -> bool:
    return node.journal.flushed_index < node.journal.durable_index


@pytest.mark.parametrize("leads", [True, False])
def test_async_power_loss_minority(leads: bool) -> None:
    """Its node comes back as a newcomer, and every message is delivered once due, once."""

    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        draw = random.Random(leads)
        for _ in range(2):
            leader = await world.until_served()
            node = leader if leads else draw.choice([one for one in world.whole if one is not leader])
            for _ in range(5):
                await producer.schedule("a", soon(world, 10, 2_000))
            assert waits(node)
            node.lose_power()
            assert node.disk.lost_power
            await asyncio.sleep(draw.random())
            node.start(world.members)
            await producer.schedule("b", soon(world, 20, 1_000))
            await world._gather_disks()
        assert world.checker.sometimes["power lost"] == world.checker.sometimes["rejoined"] == 2

    scenario(play, begin=begin_async)


@pytest.mark.parametrize("seed", range(4))
def test_async_power_loss_majority(seed: int) -> None:
    """All machines lose their power: no id that is lost names a message that came later."""

    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        draw = random.Random(seed)
        later_ms = [world.true_ms() + LATER_MS + number for number in range(5)]
        await producer.schedule("a", soon(world, 20, 300))
        kept = await producer.schedule("a", later_ms)
        await asyncio.sleep(3 + draw.random())
        leader = await world.until_served()
        assert not waits(leader)
        while not all(map(waits, world.whole)) or draw.random() < 0.9:
            await producer.schedule("a", later_ms)
        for node in world.whole:
            node.lose_power()
        for node in world.whole:
            node.start(world.members)
        await asyncio.sleep(draw.random())
        await recover(world)
        lost = [told.message for told in world.ledger.gone.values()]
        assert lost
        while len(world.ledger.told) < 2 * len(lost) + 25:
            await producer.schedule("a", later_ms)
        assert set(await cancelled(world, lost)) == {pb.CANCEL_OUTCOME_NOT_FOUND}
        assert await producer.cancel(kept[0])

    scenario(play, begin=partial(begin_async, flush_ms=500))


async def cancelled(world: WholeWorld, messages: Sequence[Id]) -> Sequence[int]:
    """Return what becomes of cancels by these ids."""
    leader = await world.until_served()
    ids = [str(MessageId(0, *message)) for message in messages]
    raw = await leader.edge.cancel(pb.CancelRequest(ids=ids, every_outcome=True).SerializeToString())
    assert isinstance(raw, bytes)
    return pb.CancelResponse.FromString(raw).outcomes


def test_no_checkpoint_is_ahead_of_what_is_flushed() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        node = await world.until_served()
        for _ in range(5):
            await producer.schedule("a", soon(world, 10, 2_000))
        assert waits(node)
        _, index, _ = await node.core.checkpoints.write_with_digest()
        assert node.journal.flushed_index >= index

    scenario(play, begin=begin_async)
