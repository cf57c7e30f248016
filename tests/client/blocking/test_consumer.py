"""The blocking consumer: what it has fetched from its loop and not handed out yet stays leased."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tarry.client import sync
from tarry.client.blocking.consumer import Consumer, Message
from tarry.client.errors import Closed
from tests.client.stand_in import ClusterStandIn, GroupStandIn, break_off


async def receive(consumer: Consumer, timeout_ms: int = 10_000) -> Message:
    message = await asyncio.to_thread(consumer.receive, timeout_ms)
    assert message is not None
    return message


@asynccontextmanager
async def subscribed(servers: str, lease_ms: int = 0, credit: int = 1_000) -> AsyncIterator[Consumer]:
    client = sync.connect(servers)
    try:
        consumer = await asyncio.to_thread(client.consumer, "orders", "g", lease_ms=lease_ms, credit=credit)
        await asyncio.to_thread(consumer.start)
        yield consumer
    finally:
        await asyncio.to_thread(client.close)


async def test_leases_of_messages_that_wait_behind_a_slow_one_are_extended(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    async with subscribed(cluster.addresses, lease_ms=2_000) as consumer:
        await group.deliver(range(3))
        first = await receive(consumer)
        assert first.offset == 0
        await group.until(lambda: any(request.HasField("extend") for request in group.received))
        (extend, *_) = [request.extend for request in group.received if request.HasField("extend")]
        assert (sorted(extend.offset), extend.lease_ms) == ([1, 2], 2_000)


async def test_what_waited_until_its_lease_was_over_is_passed_over(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    async with subscribed(cluster.addresses, lease_ms=600_000) as consumer:
        await group.deliver(range(3))
        first = await receive(consumer)
        first._twin.batch.leased_s -= 601  # type: ignore[attr-defined]  # as if the machine had slept
        await group.deliver(range(3, 4))
        assert (await receive(consumer)).offset == 3
        assert consumer.state.lost == 2


async def test_what_was_lost_in_a_reconnect_is_neither_handed_out_nor_extended(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    group.resume = lambda _: []
    async with subscribed(cluster.addresses, lease_ms=2_000, credit=3) as consumer:
        await group.deliver(range(3))
        assert (await receive(consumer)).offset == 0
        await group.end(break_off)
        await group.until(lambda: group.credit() == 3)  # for what it knows to be lost
        await group.deliver(range(3, 5), queue=7)
        assert (await receive(consumer)).offset == 3
        await group.until(lambda: any(r.extend.offset for r in group.received))
        assert {(r.extend.queue, *r.extend.offset) for r in group.received if r.extend.offset} == {(7, 4)}
        assert consumer.state.stale_acks == 0


async def test_nothing_is_handed_out_after_closing_gave_it_back(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    async with subscribed(cluster.addresses) as consumer:
        await group.deliver(range(3))
        assert (await receive(consumer)).offset == 0
        await asyncio.to_thread(consumer.close)
        assert await asyncio.to_thread(consumer.receive) is None


async def test_a_forked_process_is_handed_out_nothing_that_waits_for_its_parent(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    async with subscribed(cluster.addresses) as consumer:
        await group.deliver(range(3))
        assert (await receive(consumer)).offset == 0
        process, consumer._thread._process = consumer._thread._process, -1  # as in the child
        with pytest.raises(RuntimeError, match="fork"):
            consumer.receive(0)
        consumer._thread._process = process
        assert (await receive(consumer)).offset == 1


async def test_a_client_that_is_closed_within_its_producer_s_block_keeps_no_room_and_raises_nothing(
    cluster: ClusterStandIn,
) -> None:
    def use() -> None:
        client = sync.connect(cluster.addresses, waiting_messages_max=1)
        with client.producer() as producer:
            client.close()
            for _ in range(2):  # the second one would wait for ever
                with pytest.raises(Closed):
                    producer.schedule_soon("orders", b"", on_done=print)

    await asyncio.to_thread(use)
