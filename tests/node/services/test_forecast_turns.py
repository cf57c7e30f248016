"""No forecast holds the event loop for longer than a turn may take, however much it counts."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from tarry.node.edge.auth import Authorizer
from tarry.node.services import forecast
from tarry.node.services.forecast import ForecastCalls
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.tags import tag_mask
from tarry.proto.tarry_message_pb2 import Record
from tarry.wheel.state import HOUR_MS
from tests import turns as cost
from tests.node.lone_leader import TOPIC, Leader, play
from tests.simulation.edge import Context

HOUR_MESSAGES = 1_000_000
BATCH = 20_000
RECORD = Record(body=b"x" * 100, tags=["red"]).SerializeToString()


async def fill(lead: Leader, due_ms: Any, mask: int = 0) -> None:
    """Put messages into the wheel, beside the log: through it a million would take a minute."""
    queue, other = (lead.machine.queues.of(topic).queue for topic in (TOPIC, "other"))
    for start in range(0, len(due_ms), BATCH):
        part = due_ms[start : start + BATCH]
        topic = np.where(np.arange(len(part)) % 10, other, queue).astype(np.uint32)
        masks = np.full(len(part), mask, np.uint64)
        lead.machine.wheel.append(part, topic, masks, [RECORD] * len(part))
        await asyncio.sleep(0)


def test_of_an_hour_of_a_million_messages_and_of_as_many_hours_as_there_may_be() -> None:
    async def act(lead: Leader, steps: cost.Steps) -> None:
        await lead.schedule(10, np.full(10, lead.node.time.now_ms() + 4 * HOUR_MS))
        calls = ForecastCalls(lead.node._core, Authorizer({}), lead.edge._calls)
        hour = lead.node.time.now_ms() // HOUR_MS
        next_ms, rng = (hour + 1) * HOUR_MS, np.random.default_rng(1)
        await fill(lead, next_ms + rng.integers(0, HOUR_MS, HOUR_MESSAGES))
        for day_hour in range(3, 26):
            await fill(lead, (hour + day_hour) * HOUR_MS + rng.integers(0, HOUR_MS, 2_000))
        await fill(lead, (hour + 30 + np.arange(forecast.HOURS_MAX - 26)) * HOUR_MS)
        crowd = (hour + 2) * HOUR_MS + rng.integers(0, HOUR_MS, 10 * forecast.TAGGED_MAX - 100)
        await fill(lead, crowd, tag_mask(["red"]))

        async def ask(name: str, least: int, **request: Any) -> None:
            async with steps.step(name):
                raw = pb.ForecastRequest(**request).SerializeToString()
                answer: Any = await calls.answer("", raw, Context())  # type: ignore[arg-type]
                told = pb.ForecastResponse.FromString(answer)
            assert sum(told.counts) >= least, (name, sum(told.counts))

        await ask("by second", HOUR_MESSAGES - 1_000, from_ms=next_ms)
        await ask("by minute", HOUR_MESSAGES, resolution=2)
        await ask("by hour", HOUR_MESSAGES, resolution=3, buckets=87_672)
        await ask("of a topic by second", HOUR_MESSAGES // 10, topic=TOPIC, from_ms=next_ms)
        await ask("of a topic by hour", HOUR_MESSAGES // 10, topic=TOPIC, resolution=3)
        await ask("of a tag", len(crowd) // 10, topic=TOPIC, tags=["red"], resolution=2)

    assert cost.too_long(play(act)) == {}
