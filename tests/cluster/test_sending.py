"""Several topics in one call, times of messages and look-ups by them: by the clients, on real nodes."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tarry.client.aio import NewMessage, connect
from tarry.client.errors import TarryError
from tarry.client.local.cluster import LocalCluster
from tarry.client.sync import connect as connect_blocking
from tests.cluster.test_upgrade import level

pytestmark = pytest.mark.beside

PATIENCE_S = 30


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def test_messages_of_several_topics_are_all_taken_or_none_and_consumers_see_their_times(
    shared_cluster: LocalCluster,
) -> None:
    await level(shared_cluster, 2)
    began_ms = now_ms()
    async with connect(shared_cluster.addresses) as client:
        producer = client.producer()
        topics = ("sent-a", "sent-b")
        for topic in topics:
            await client.operator().create_topic(topic)
            await client.operator().create_group(topic, "g", "earliest")
        messages = [NewMessage(topic, b"all", keys=["k"], delay_ms=300) for topic in topics]
        with pytest.raises(TarryError) as refused:
            await producer.schedule_many([*messages, NewMessage("no topic!", b"all", delay_ms=300)])
        assert refused.value.reason == "TOPIC_INVALID"
        batch = await producer.schedule_many(messages)
        for topic, message_id, due_ms in zip(topics, batch.ids, batch.due_ms.tolist(), strict=True):
            async with asyncio.timeout(PATIENCE_S), client.consumer(topic, "g") as consumer:
                message = await anext(aiter(consumer))
                await message.ack()
                assert (message.id, message.body, message.due_ms) == (message_id, b"all", due_ms)
                born_ms, stored_ms, delivered_ms = message.born_ms, message.stored_ms, message.delivered_ms
                assert born_ms is not None and stored_ms is not None and delivered_ms is not None
                assert began_ms - 1_000 <= born_ms <= now_ms()
                assert began_ms - 1_000 <= stored_ms <= due_ms <= delivered_ms <= message.received_ms + 1_000
            async with client.consumer(topic, "others", start="earliest") as consumer:
                with pytest.raises(TimeoutError):  # nothing of what was refused
                    async with asyncio.timeout(1):
                        async for other in consumer:
                            assert other.id == message_id


async def test_a_key_is_looked_up_within_times(shared_cluster: LocalCluster) -> None:
    await level(shared_cluster, 2)
    async with connect(shared_cluster.addresses) as client:
        due_ms = now_ms() + 3_600_000
        first = (await client.producer().schedule("found", b"1", keys=["order"], due_ms=due_ms)).id
        await asyncio.sleep(0.05)
        between_ms = now_ms()
        await asyncio.sleep(0.05)
        second = (await client.producer().schedule("found", b"2", keys=["order"], due_ms=due_ms + 60_000)).id

        async def found(**times: Any) -> list[str]:
            return [one.id for one in (await client.query().find("found", "order", **times)).messages]

        assert sorted(await found()) == sorted([first, second])
        assert await found(stored_to_ms=between_ms) == await found(born_to_ms=between_ms) == [first]
        assert await found(stored_from_ms=between_ms) == await found(born_from_ms=between_ms) == [second]
        assert await found(due_from_ms=due_ms + 1) == [second]
        assert await found(due_to_ms=due_ms + 1) == [first]


def test_the_blocking_client_sends_to_several_topics(shared_cluster: LocalCluster) -> None:
    with connect_blocking(shared_cluster.addresses) as client:
        topics = ("sent-c", "sent-d")
        batch = client.producer().schedule_many(
            [NewMessage(topic, b"x", delay_ms=3_600_000) for topic in topics]
        )
        assert [client.producer().get(message_id).topic for message_id in batch.ids] == list(topics)
