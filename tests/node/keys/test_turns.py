"""What a turn of the event loop costs where messages have keys, as many as they may."""

from __future__ import annotations

import asyncio

import numpy as np

from tarry.node.config import Limits
from tarry.node.services import producer
from tarry.node.services.producer import KEY_BYTES, REQUEST_BYTES, TURN_BYTES
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.tarry_message_pb2 import MessageState, Record
from tarry.proto.tarry_producer_pb2 import ScheduleBatchRequest
from tarry.wheel.state import HOUR_MS
from tests import turns as cost
from tests.node.keys.test_find_by_key import complete, find, ids
from tests.node.lone_leader import Leader, play

MESSAGES = Limits().batch_messages_max


def batch(keys_each: int, due_ms: object) -> bytes:
    records = [
        Record(body=b"x" * 100, keys=["every", *(f"k{at}-{key}" for key in range(1, keys_each))])
        for at in range(MESSAGES)
    ]
    return ScheduleBatchRequest(
        topics=["t"],
        due_ms=due_ms,  # type: ignore[arg-type]
        records=[record.SerializeToString() for record in records],
    ).SerializeToString()


def test_scheduling_as_many_keys_as_a_batch_may_have_and_finding_them() -> None:
    async def act(lead: Leader, steps: cost.Steps) -> None:
        await complete(lead)
        due_ms = lead.node.time.now_ms() + np.arange(MESSAGES) % 3 * HOUR_MS + HOUR_MS
        for keys_each in (1, 2, Limits().keys_max):
            raw = batch(keys_each, due_ms)
            async with steps.step(f"schedule {keys_each}"):
                assert isinstance(await lead.edge.schedule(raw), bytes)
        async with steps.step("find"):
            found = await ids(lead, "every", limit=1_000)
        assert len(found) == 3 * MESSAGES
        async with steps.step("write"):
            await lead.node._core.keys.write()
        async with steps.step("find with records"):
            assert len(await ids(lead, "every", limit=1_000, records=True)) == 3 * MESSAGES

    assert cost.too_long(play(act)) == {}


def test_keys_count_in_a_requests_share_of_a_turn() -> None:
    bare = ScheduleBatchRequest(topics=["t"], due_ms=[1], records=[b""] * 100).SerializeToString()
    keyed = bare + ScheduleBatchRequest(records=[small(16)] * 100).SerializeToString()
    own = (len(keyed) + REQUEST_BYTES) / TURN_BYTES
    assert producer._part(bare, 1 << 20) == (len(bare) + REQUEST_BYTES) / TURN_BYTES
    assert producer._part(keyed, 1_600) == own + KEY_BYTES * 1_600 / TURN_BYTES
    assert producer._part(keyed, 1_599) == own + KEY_BYTES * 1_599 / TURN_BYTES
    large = bytes([0x12]) * TURN_BYTES
    assert producer._part(large, 1_600) == (len(large) + REQUEST_BYTES) / TURN_BYTES


def small(keys_each: int) -> bytes:
    return Record(keys=[f"{key:x}" for key in range(keys_each)]).SerializeToString()


def test_requests_of_small_messages_with_many_keys_that_come_together() -> None:
    count = 500
    raw = ScheduleBatchRequest(
        topics=["t"], delay_ms=[HOUR_MS] * count, records=[small(16)] * count
    ).SerializeToString()

    async def act(lead: Leader, steps: cost.Steps) -> None:
        await complete(lead)
        assert isinstance(await lead.edge.schedule(raw), bytes)
        async with steps.step("schedule"):
            answers = await asyncio.gather(*[lead.edge.schedule(raw) for _ in range(60)])
        assert all(isinstance(answer, bytes) for answer in answers)

    assert cost.too_long(play(act)) == {}


def test_finding_a_key_of_a_hundred_thousand_messages_gathered_and_in_runs() -> None:
    async def act(lead: Leader, steps: cost.Steps) -> None:
        await complete(lead)
        now_ms = lead.node.time.now_ms()
        count = -(-100_000 // MESSAGES)
        for number in range(count):
            assert isinstance(await lead.edge.schedule(batch(1, [now_ms + 2 * HOUR_MS] * MESSAGES)), bytes)
            if number % 10 == 0:
                await lead.node._core.keys.write()
        keeper = lead.node._core.keys
        assert keeper._index.runs
        assert len(keeper._gathered)
        assert keeper.rows == count * MESSAGES
        for limit in (1, 1_000):
            async with steps.step(f"find {limit}"):
                page = await find(lead, "every", limit=limit, records=True)
            assert isinstance(page, pb.FindByKeyResponse)
            assert len(page.messages) == limit
        async with steps.step("find none"):
            page = await find(lead, "every", states=[MessageState.MESSAGE_STATE_RELEASED])
        assert isinstance(page, pb.FindByKeyResponse)
        assert page.next

    assert cost.too_long(play(act)) == {}


def test_finding_what_lies_in_thousands_of_hours_and_building_the_index_of_them() -> None:
    async def act(lead: Leader, steps: cost.Steps) -> None:
        await complete(lead)
        hours = lead.node.time.now_ms() + (np.arange(MESSAGES) % 2_048 + 2) * HOUR_MS
        assert isinstance(await lead.edge.schedule(batch(1, hours)), bytes)
        async with steps.step("find"):
            assert len(await ids(lead, "every", limit=1_000)) == MESSAGES
        lead.node._core.keys._fail("as if it were damaged")
        async with steps.step("build"):
            assert await lead.node._core.keys.build()
        assert len(await ids(lead, "every", limit=1_000)) == MESSAGES

    assert cost.too_long(play(act)) == {}
