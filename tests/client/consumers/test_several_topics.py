"""Consumers of several topics, and leases that become shorter: a topic that comes later may have one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from tarry.client.aio import FailedAcks, connect
from tarry.client.errors import InvalidSubscription
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tests.client.stand_in import ClusterStandIn, GroupStandIn, take


@pytest.mark.parametrize(
    ("topic", "topics", "asked"),
    [
        ("", ["orders.*", "bills"], ["orders.*", "bills"]),
        ("", "orders.*", ["orders.*"]),
        ("orders.*", (), ["orders.*"]),
    ],
)
async def test_a_consumer_asks_for_names_and_patterns(
    cluster: ClusterStandIn, group: GroupStandIn, topic: str, topics: Iterable[str], asked: list[str]
) -> None:
    async with (
        connect(cluster.addresses) as client,
        client.consumer(topic, "g", topics=topics) as consumer,
    ):
        (subscribe,) = group.subscribed
        assert (subscribe.topic, list(subscribe.topics)) == ("", asked)
        assert (consumer.topic, consumer.topics) == ("", tuple(asked))
        await group.deliver(range(1), topic="orders.a")
        await group.deliver(range(1), queue=4, topic="bills")
        assert [message.topic for message in await take(consumer, 2)] == ["orders.a", "bills"]


async def test_a_topic_beside_others_is_refused_before_anything_is_sent(cluster: ClusterStandIn) -> None:
    async with connect(cluster.addresses) as client:
        for make in (client.consumer, client.puller):
            with pytest.raises(InvalidSubscription, match="name all as topics"):
                make("a", "g", topics=["b"])


async def test_an_ack_that_did_not_count_is_told_with_the_topic_of_its_message(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    told = asyncio.Queue[FailedAcks]()
    async with (
        connect(cluster.addresses, ack_linger_ms=1) as client,
        client.consumer(topics=["*"], group="g", on_ack_failed=told.put_nowait) as consumer,
    ):
        group.stale = {1}
        await group.deliver(range(1, 2), queue=4, topic="bills")
        (message,) = await take(consumer, 1)
        message.ack_soon()
        async with asyncio.timeout(10):
            failed = await told.get()
    assert (failed.topic, failed.queue) == ("bills", 4)


async def test_a_lease_that_becomes_shorter_is_extended_in_time(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    async with (
        connect(cluster.addresses) as client,
        client.consumer("orders", "g") as consumer,
    ):
        assert consumer.lease_ms == 30_000
        (stream,) = group._streams
        shorter = consumer_pb.Subscribed(consumer=consumer.name, lease_ms=400)
        await stream.put(consumer_pb.ConsumeResponse(subscribed=shorter))
        await group.deliver(range(2))

        def extended() -> bool:
            return any(list(request.extend.offset) == [0, 1] for request in group.received)

        async with asyncio.timeout(2):  # of the lease before, an eighth alone is longer
            await group.until(extended)
