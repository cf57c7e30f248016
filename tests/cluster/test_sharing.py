"""How a group shares its messages: evenly, and nobody pays for a member that is stuck."""

from __future__ import annotations

import asyncio
import queue
import time
from collections import Counter
from collections.abc import Iterable

from tarry.client.aio import Client, Consumer, connect
from tarry.client.local.cluster import LocalCluster, LocalNode
from tarry.proto import tarry_consumer_pb2 as c
from tests.cluster.wire import wire

PATIENCE_S = 30


async def schedule(client: Client, topic: str, count: int, body: bytes = b"x" * 100) -> None:
    producer = client.producer()
    for start in range(0, count, 1_000):
        await producer.schedule_batch(topic, [body] * min(1_000, count - start), delay_ms=1_500)


async def draining(
    consumer: Consumer, counts: Counter[str], name: str, *, ack: bool = True
) -> asyncio.Task[None]:
    """Subscribe; return the task that then takes what comes."""

    async def drain() -> None:
        try:
            async for batch in consumer.batches():
                counts[name] += len(batch)
                if ack:
                    batch.ack_soon()
        finally:
            await consumer.close()

    await consumer.start()
    return asyncio.create_task(drain())


async def end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def until(counts: Counter[str], names: Iterable[str], total: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while sum(counts[name] for name in names) < total:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_two_members_get_equal_shares_within_a_tenth(shared_cluster: LocalCluster) -> None:
    counts: Counter[str] = Counter()
    async with connect(shared_cluster.addresses) as client:
        tasks = [
            await draining(client.consumer("even", "g", name=name, credit=500), counts, name) for name in "ab"
        ]
        await schedule(client, "even", 20_000)
        await until(counts, "ab", 20_000)
        await end(tasks)
    assert counts["a"] + counts["b"] == 20_000
    assert abs(counts["a"] - counts["b"]) <= 2_000


async def test_a_member_that_never_acknowledges_keeps_no_more_than_its_credit(
    shared_cluster: LocalCluster,
) -> None:
    counts: Counter[str] = Counter()
    async with connect(shared_cluster.addresses) as client:
        stuck = client.consumer("stuck", "g", name="s", credit=100, lease_ms=60_000)
        free = client.consumer("stuck", "g", name="f", credit=1_000)
        tasks = [
            await draining(stuck, counts, "s", ack=False),
            await draining(free, counts, "f"),
        ]
        await schedule(client, "stuck", 5_000)
        await until(counts, "sf", 5_000)
        await end(tasks)
    assert counts["s"] <= 100
    assert counts["f"] >= 4_900


async def test_every_group_sees_every_message(shared_cluster: LocalCluster) -> None:
    counts: Counter[str] = Counter()
    async with connect(shared_cluster.addresses) as client:
        tasks = [await draining(client.consumer("all", group), counts, group) for group in "gh"]
        await schedule(client, "all", 1_000)
        for group in "gh":
            await until(counts, group, 1_000)
        await end(tasks)
    assert counts == {"g": 1_000, "h": 1_000}


def vanish_with(leader: LocalNode, topic: str, count: int) -> None:
    """Take messages on a bare stream, and break it without a word."""
    requests: queue.Queue[c.ConsumeRequest] = queue.Queue()
    subscribe = c.Subscribe(topic=topic, group="g", consumer="gone", credit=count, lease_ms=5_000)
    requests.put(c.ConsumeRequest(subscribe=subscribe))
    with wire(leader.address) as bare:
        stream = bare.consumer.Consume(iter(requests.get, None), timeout=PATIENCE_S)
        taken = 0
        while taken < count:
            taken += len(next(stream).deliveries.records)
        stream.cancel()


async def test_what_a_vanished_member_had_in_hand_comes_to_the_others_when_its_lease_is_over(
    shared_cluster: LocalCluster,
) -> None:
    counts: Counter[str] = Counter()
    leader = shared_cluster.nodes[await asyncio.to_thread(shared_cluster.wait_until_serving)]
    async with connect(shared_cluster.addresses) as client:
        await schedule(client, "vanish", 50)
        await asyncio.to_thread(vanish_with, leader, "vanish", 50)
        gone_at = time.monotonic()
        task = await draining(client.consumer("vanish", "g", name="left"), counts, "left")
        await until(counts, ("left",), 50)
        await end([task])
    assert time.monotonic() - gone_at > 2.0
    assert counts["left"] == 50
