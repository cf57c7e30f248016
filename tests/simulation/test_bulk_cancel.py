"""A cancel of many messages while leaders die and answers are lost."""

from __future__ import annotations

import asyncio
import random

import pytest

from tarry.node.leader import pending_pages
from tarry.node.services import bulk_cancel
from tarry.proto import tarry_query_pb2 as pb
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.state import MessageState
from tests.simulation.edge import StreamEnded
from tests.simulation.model_producer import TRY_AGAIN, ModelProducer
from tests.simulation.whole_scenario import scenario
from tests.simulation.whole_world import WholeWorld

MESSAGES = 400


async def step(world: WholeWorld, rng: random.Random, cursor: str) -> pb.BulkCancel:
    """Make one call, again and again until an answer comes; some answers are lost on the way."""
    request = pb.CancelMatchingRequest(filter=pb.MessageFilter(topic="a", tags=["red"]), cursor=cursor)
    while True:
        node = world.likely_leader(rng, "canceller")
        try:
            asked = node and node.edge.cancel_matching(request.SerializeToString())
            answer = await asyncio.wait_for(asked, 2.0) if asked else None
        except (StreamEnded, TimeoutError):
            answer = None
        if isinstance(answer, bytes) and rng.random() >= 0.2:
            return pb.CancelMatchingResponse.FromString(answer).progress
        assert not isinstance(answer, Refusal) or answer.reason in TRY_AGAIN, answer
        await asyncio.sleep(rng.uniform(0.005, 0.05))


@pytest.mark.parametrize("seed", range(3))
def test_under_dying_leaders_the_sums_are_exact_and_nothing_cancelled_is_delivered(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_cancel, "CHOSEN_MAX", 5)
    monkeypatch.setattr(pending_pages, "PAGE_UNITS", 40)
    told: list[pb.BulkCancel] = []

    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        rng, ledger = random.Random(seed), world.ledger
        now_ms, labels = world.true_ms(), list[bytes]()
        for _ in range(MESSAGES // 40):
            labels += await producer.schedule("a", [now_ms + rng.randrange(300, 12_000) for _ in range(40)])
        ledger.perhaps_cancelled.update(labels)

        async def kill() -> None:
            for _ in range(2):
                await asyncio.sleep(rng.uniform(0.1, 0.6))
                (await world.until_served()).crash()
                await asyncio.sleep(1.5)
                await world.mend()

        killing = asyncio.ensure_future(kill())
        cursor = ""
        while not told or not told[-1].done:
            told.append(await step(world, rng, cursor))
            cursor = told[-1].cursor
        await killing
        machine = (await world.until_served()).core.machine
        await asyncio.sleep(0.1)
        states = {label: machine.wheel.state(*ledger.told[label].message) for label in labels}
        gone = [label for label, state in states.items() if state is MessageState.CANCELLED]
        assert told[-1].cancelled == len(gone) > 0
        assert told[-1].matched == told[-1].cancelled + told[-1].released
        ledger.perhaps_cancelled.difference_update(labels)
        for label in gone:
            ledger.cancel_answered(label, world.rows.retried(ledger.told[label]))

    scenario(play)
    assert len(told) > 5
