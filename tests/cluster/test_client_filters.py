"""Filters by properties with the client's consumers, against real nodes."""

from __future__ import annotations

import pytest

from tarry.client.aio import Client, Message, NewMessage, connect
from tarry.client.local.cluster import LocalCluster
from tests.cluster.test_upgrade import level

pytestmark = pytest.mark.beside

FILTER = "amount > 10 AND region IN ('eu', 'us')"
SENT = {
    b"too little": {"amount": "10", "region": "eu"},
    b"first": {"amount": "11", "region": "eu"},
    b"elsewhere": {"amount": "12", "region": "jp"},
    b"second": {"amount": "1e3", "region": "us"},
    b"no number": {"amount": "much", "region": "us"},
    b"no region": {"amount": "99"},
    b"third": {"amount": "13.5", "region": "eu"},
}
WANTED = [b"first", b"second", b"third"]


async def sent(client: Client, topic: str) -> None:
    """Have messages with one ordering key and the tag red released, and as many that are blue."""
    messages = [
        NewMessage(topic, body, delay_ms=0, tags=[tag], properties=properties, ordering_key="k")
        for body, properties in SENT.items()
        for tag in ("red", "blue")
    ]
    await client.producer().schedule_many(messages)


async def test_a_stream_has_what_its_filter_and_its_tags_are_true_of_in_order_and_again(
    shared_cluster: LocalCluster,
) -> None:
    await level(shared_cluster, 2)
    async with connect(shared_cluster.addresses) as client:
        await sent(client, "filtered")
        seen: list[tuple[bytes, int]] = []
        async with client.consumer(
            "filtered", "red", tags=["red"], filter=FILTER, credit=1, start="earliest"
        ) as consumer:
            while len(seen) <= len(WANTED):
                message: Message = await anext(consumer)
                seen.append((message.body, message.attempt))
                if message.body == b"second" and message.attempt == 1:
                    await message.nack(delay_ms=0)
                else:
                    await message.ack()
        assert seen == [(b"first", 1), (b"second", 1), (b"second", 2), (b"third", 1)]
        status = await client.operator().status()
        (group,) = (one for of in status.topics if of.topic == "filtered" for one in of.groups)
        assert (group.floor, group.retrying, group.in_hand) == (2 * len(SENT), 0, 0)  # passed over, and done


async def test_polls_and_broadcasts_have_what_their_filter_is_true_of(shared_cluster: LocalCluster) -> None:
    await level(shared_cluster, 2)
    async with connect(shared_cluster.addresses) as client:
        await sent(client, "filtered-too")
        puller = client.puller("filtered-too", "polls", filter=FILTER, start="earliest")
        polled: list[bytes] = []
        while len(polled) < 2 * len(WANTED):
            messages = await puller.receive(10, wait_ms=10_000)
            polled += [message.body for message in messages]
            await puller.ack(messages)
        assert polled == [body for body in WANTED for _ in range(2)]
        assert await puller.receive(10) == []
        for name in ("one", "other"):
            told: list[bytes] = []
            async with client.consumer(
                "filtered-too", "all", name=name, broadcast=True, filter=FILTER, start="earliest"
            ) as consumer:
                while len(told) < 2 * len(WANTED):
                    message = await anext(consumer)
                    told.append(message.body)
                    await message.ack()
            assert told == polled
