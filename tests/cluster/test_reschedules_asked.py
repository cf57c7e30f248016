"""Rescheduled messages as queries tell of them: under their ids, where they are due now."""

from __future__ import annotations

import asyncio
import time

import pytest

from tarry.client.aio import CancelOutcome, ChangeOutcome, Client, MessageState, connect
from tarry.client.local.cluster import LocalCluster

pytestmark = pytest.mark.beside

HOUR_MS = 3_600_000


async def asked(client: Client, topic: str, due_ms: int) -> tuple[list[str], list[str], int]:
    """Return the ids of what is listed, those of what has the key, and how many are due in an hour."""
    query = client.query()
    listed = [(one.id, one.due_ms) async for one in query.list_messages(topic)]
    found = await query.find(topic, "k")
    assert all(at == due_ms for _, at in listed)
    assert all(one.due_ms == due_ms for one in found.messages if one.state is MessageState.PENDING)
    forecast = await query.forecast(topic=topic, from_ms=due_ms, by="hour", buckets=1)
    pending = [one.id for one in found.messages if one.state is MessageState.PENDING]
    return [one for one, _ in listed], pending, forecast.counts[0]


async def play(servers: str) -> None:
    topic, now_ms = "asked", time.time_ns() // 1_000_000
    first_ms, then_ms, last_ms = (now_ms + hours * HOUR_MS for hours in (30, 3, 50))
    async with connect(servers) as client:
        await client.operator().finish_upgrade()
        producer, query = client.producer(), client.query()
        given = await producer.schedule(topic, b"one", due_ms=first_ms, keys=["k"])
        other = await producer.schedule(topic, b"two", due_ms=first_ms, keys=["k"])
        ids = [given.id, other.id]
        for due_ms in (then_ms, last_ms):
            changes = await producer.reschedule_many(ids, due_ms=due_ms)
            assert {change.outcome for change in changes} == {ChangeOutcome.CHANGED}
            listed, found, count = await asked(client, topic, due_ms)
            assert (sorted(listed), sorted(found), count) == (sorted(ids), sorted(ids), 2)
            every = (await query.find(topic, "k")).messages
            assert {one.id for one in every} == {*ids}, "places that were left are nobody's"
            life = await query.life(given.id)
            assert (life.id, life.due_ms, life.state) == (given.id, due_ms, MessageState.PENDING)
        assert await query.count_matching(topic, due_to_ms=first_ms + HOUR_MS) == 0
        assert await producer.cancel(other.id) is CancelOutcome.CANCELLED
        *_, told = [each async for each in query.cancel_matching(topic, due_from_ms=last_ms)]
        assert (told.done, told.matched, told.cancelled) == (True, 1, 1)
        assert (await producer.get(given.id)).state is MessageState.CANCELLED
        assert await asked(client, topic, last_ms) == ([], [], 0)
        history = await query.history(given.id)
        kinds = [row.kind for row in history.rows]
        assert (kinds.count("scheduled"), kinds.count("rescheduled"), kinds.count("cancelled")) == (1, 2, 1)
        await client.operator().create_group(topic, "g")
        soon = await producer.schedule(topic, b"three", due_ms=first_ms, keys=["k"])
        assert (await producer.reschedule(soon.id, delay_ms=0)).outcome is ChangeOutcome.CHANGED
        async with client.consumer(topic, "g") as consumer:
            async for message in consumer:
                (in_group,) = (await query.life(soon.id)).groups
                assert (message.id, in_group.state, message.body) == (soon.id, "in_hand", b"three")
                released = [one.id async for one in query.list_messages(topic, group="g", states=["in_hand"])]
                assert released == [soon.id]
                await message.ack()
                break


def test_they_are_listed_found_counted_and_cancelled_where_they_rest(shared_cluster: LocalCluster) -> None:
    asyncio.run(play(shared_cluster.addresses))
