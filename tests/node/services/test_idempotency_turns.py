"""What a turn of the event loop costs where messages have idempotency keys."""

from __future__ import annotations

import asyncio

import numpy as np

from tarry.node.config import Limits
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_producer_pb2 import ScheduleBatchRequest
from tarry.wheel.state import HOUR_MS
from tests import turns as cost
from tests.node.keys.test_find_by_key import complete
from tests.node.lone_leader import Leader, play, until

MESSAGES = Limits().batch_messages_max


def batch(first: int, due_ms: int, count: int = MESSAGES, body_bytes: int = 100) -> bytes:
    records = [
        Record(body=b"x" * body_bytes, idempotency_key=f"order-{number:032d}").SerializeToString()
        for number in range(first, first + count)
    ]
    dues = due_ms + np.arange(count) % 50 * HOUR_MS
    return ScheduleBatchRequest(topics=["t"], due_ms=dues, records=records).SerializeToString()


async def repeats(lead: Leader, raw: bytes) -> int:
    answer = await lead.edge.schedule(raw)
    assert isinstance(answer, bytes), answer
    return len(log_pb.ScheduledColumns.FromString(answer).repeats) // 4


def test_batches_of_as_many_keys_as_there_may_be_new_and_repeated_together_and_beside_others() -> None:
    async def act(lead: Leader, steps: cost.Steps) -> None:
        await complete(lead)
        await until(lambda: lead.machine.level >= 2)
        due_ms = lead.node.time.now_ms() + HOUR_MS
        half = MESSAGES // 2
        some = batch(0, due_ms)
        for name, raw, expected in (
            ("new", some, 0),
            ("repeated", some, MESSAGES),
            ("half of it new", batch(half, due_ms), half),
        ):
            async with steps.step(name):
                assert await repeats(lead, raw) == expected
            await lead.node._core.keys.write()
        large = batch(10 * MESSAGES, due_ms, 16, 200_000)
        for name in ("large", "large repeated"):
            async with steps.step(name):
                await repeats(lead, large)
        few = [batch(100 * MESSAGES + at // 2, due_ms, 1) for at in range(400)]
        async with steps.step("one by one"):
            assert sum(await asyncio.gather(*(repeats(lead, raw) for raw in few))) == 200

    assert cost.too_long(play(act)) == {}
