"""The consumer: order, acks, credit, and what it makes of a stream that breaks."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from tarry.client.aio import connect
from tarry.client.consumer import Consumer
from tarry.client.delivery import Stamp
from tarry.client.errors import Closed, ConsumerReplaced, InvalidName, Unavailable
from tarry.client.hand import AckOutcome
from tarry.client.message import Message
from tarry.proto.tarry_message_pb2 import Record
from tests.client.stand_in import ClusterStandIn, GroupStandIn, refuse


async def take(consumer: Consumer, count: int) -> list[Message]:
    async with asyncio.timeout(10):
        return [await anext(consumer) for _ in range(count)]


async def break_off(context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")


async def test_messages_come_in_order_with_all_they_carry(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    record = Record(body=b"b", tags=["t"], keys=["k"], properties={"p": "1"}).SerializeToString()
    async with connect(cluster.addresses) as client, client.consumer("orders", "g") as consumer:
        await group.deliver(range(2), records=[record] * 2, attempt=[1, 4], maybe_duplicate=[1])
        first, second = await take(consumer, 2)
    assert (first.offset, second.offset, first.queue, first.topic) == (0, 1, 3, "orders")
    assert (second.body, second.tags, second.keys, second.properties) == (b"b", ("t",), ("k",), {"p": "1"})
    assert (second.due_ms, second.released_ms, second.attempt) == (1_001, 991, 4)
    assert (first.maybe_duplicate, second.maybe_duplicate) == (False, True)
    assert first.stamp == Stamp("n1", 2, 1, 2)
    assert len({first.id, second.id}) == 2
    assert first.received_ms > 1_600_000_000_000


async def test_batches_give_columns(cluster: ClusterStandIn, group: GroupStandIn) -> None:
    async with connect(cluster.addresses) as client, client.consumer("orders", "g") as consumer:
        await group.deliver(range(3))
        async for batch in consumer.batches():
            assert batch.bodies == [b"0", b"1", b"2"]
            assert batch.due_ms.tolist() == [1_000, 1_001, 1_002]
            assert batch.attempts.tolist() == [1, 1, 1]
            assert batch.maybe_duplicates.tolist() == [False] * 3
            assert await batch.ack() == [AckOutcome.OK] * 3
            break
    assert sorted(group.acked()) == [0, 1, 2]


async def test_acks_of_one_turn_leave_together_and_are_answered_one_by_one(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    group.stale = {2}
    async with connect(cluster.addresses) as client, client.consumer("orders", "g") as consumer:
        await group.deliver(range(4))
        messages = await take(consumer, 4)
        outcomes = await asyncio.gather(*(message.ack() for message in messages))
    assert outcomes == [AckOutcome.OK, AckOutcome.OK, AckOutcome.STALE, AckOutcome.OK]
    assert len([request for request in group.received if request.HasField("ack")]) == 1
    assert consumer.stale_acks == 1


async def test_a_nack_carries_its_delay(cluster: ClusterStandIn, group: GroupStandIn) -> None:
    async with connect(cluster.addresses) as client, client.consumer("orders", "g") as consumer:
        await group.deliver(range(2))
        first, second = await take(consumer, 2)
        assert await first.nack(delay_ms=700) is AckOutcome.OK
        assert await second.nack() is AckOutcome.OK
    nacks = [request.nack for request in group.received if request.HasField("nack")]
    assert [(list(n.offset), n.delay_ms, n.HasField("delay_ms")) for n in nacks] == [
        ([0], 700, True),
        ([1], 0, False),
    ]


async def test_subscribing_says_what_is_wanted(cluster: ClusterStandIn, group: GroupStandIn) -> None:
    async with (
        connect(cluster.addresses) as client,
        client.consumer("orders", "g", tags=["x"], credit=7, lease_ms=5_000, name="me") as consumer,
    ):
        assert consumer.lease_ms == 5_000
        await group.until(lambda: bool(group.subscribed))
    (subscribe,) = group.subscribed
    assert (subscribe.topic, subscribe.group, subscribe.consumer) == ("orders", "g", "me")
    assert (list(subscribe.tags), subscribe.credit, subscribe.lease_ms) == (["x"], 7, 5_000)


async def test_credit_comes_back_as_messages_are_acked(cluster: ClusterStandIn, group: GroupStandIn) -> None:
    async with connect(cluster.addresses) as client, client.consumer("orders", "g", credit=4) as consumer:
        await group.deliver(range(3))
        messages = await take(consumer, 3)
        assert group.credit() == 0  # all three are still in hand
        for message in messages:
            message.ack_soon()
        await group.until(lambda: group.credit() == 3)


async def test_after_a_break_it_lists_what_it_holds_and_goes_on_where_it_was(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    async with connect(cluster.addresses) as client, client.consumer("orders", "g", credit=10) as consumer:
        await group.deliver(range(4))
        first, *_ = await take(consumer, 2)  # two more wait in the client
        cluster.lead(cluster.nodes[1])
        await group.end(break_off)
        await group.until(lambda: len(group.subscribed) == 2)
        again = group.subscribed[1]
        assert [(h.queue, list(h.offset)) for h in again.holding] == [(3, [0, 1, 2, 3])]
        assert again.credit == 6
        assert again.consumer == group.subscribed[0].consumer
        assert await first.ack() is AckOutcome.OK
        rest = await take(consumer, 2)
        await group.deliver(range(4, 5))
        rest += await take(consumer, 1)
        assert [message.offset for message in rest] == [2, 3, 4]
        assert consumer.reconnects == 1
    assert cluster.calls["n2.Consume"] == 1


async def test_an_ack_without_an_answer_is_sent_again_after_a_break(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    group.answer_acks = False
    async with connect(cluster.addresses) as client, client.consumer("orders", "g") as consumer:
        await group.deliver(range(2))
        first, second = await take(consumer, 2)
        waited = first.ack()
        second.ack_soon()
        await group.until(lambda: len(group.acked()) == 2)
        group.answer_acks = True
        await group.end(break_off)
        assert await asyncio.wait_for(waited, 10) is AckOutcome.OK
        assert sorted(group.acked()) == [0, 0, 1, 1]


async def test_an_ack_that_may_have_counted_before_the_break_is_unknown(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    group.answer_acks = False
    group.resume = lambda _: []
    async with connect(cluster.addresses) as client, client.consumer("orders", "g") as consumer:
        await group.deliver(range(1))
        (message,) = await take(consumer, 1)
        waited = message.ack()
        await group.until(lambda: group.acked() == [0])
        await group.end(break_off)
        assert await asyncio.wait_for(waited, 10) is AckOutcome.UNKNOWN


async def test_what_was_not_resumed_is_not_handed_out_and_its_ack_is_stale(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    group.resume = lambda holding: [offset for offset in holding.offset if offset in {1, 3}]
    async with connect(cluster.addresses) as client, client.consumer("orders", "g") as consumer:
        await group.deliver(range(3))
        await group.deliver(range(3, 5))
        first, second = await take(consumer, 2)  # 2, 3 and 4 wait in the client
        await group.end(break_off)
        await group.until(lambda: len(group.subscribed) == 2)
        assert await second.ack() is AckOutcome.OK
        assert await first.ack() is AckOutcome.STALE
        await group.deliver(range(7, 8))
        assert [message.offset for message in await take(consumer, 2)] == [3, 7]
        assert consumer.lost == 3


async def test_a_redirect_leads_straight_to_the_leader(cluster: ClusterStandIn, group: GroupStandIn) -> None:
    async with connect(cluster.addresses) as client, client.consumer("orders", "g"):
        cluster.lead(cluster.nodes[2])
        leader = cluster.nodes[2].address

        async def moved(context: Any) -> None:
            await refuse(context, grpc.StatusCode.UNAVAILABLE, "NOT_LEADER", {"leader": leader})

        await group.end(moved)
        await group.until(lambda: len(group.subscribed) == 2)
    assert cluster.calls["n2.Consume"] == 0
    assert cluster.calls["n3.Consume"] == 1


async def test_a_leader_that_falls_silent_is_left_when_another_leads(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    async with connect(cluster.addresses, watch_ms=50) as client, client.consumer("orders", "g") as consumer:
        cluster.nodes[0].silent = True  # its open stream stays open and says nothing
        cluster.lead(cluster.nodes[1])
        await group.until(lambda: len(group.subscribed) == 2)
        await group.deliver(range(1))
        assert (await take(consumer, 1))[0].offset == 0
    assert cluster.calls["n2.Consume"] == 1


async def test_a_quiet_stream_of_a_good_leader_is_kept(cluster: ClusterStandIn, group: GroupStandIn) -> None:
    async with connect(cluster.addresses, watch_ms=20) as client, client.consumer("orders", "g") as consumer:

        def asked() -> int:
            return cluster.calls["n2.ClusterStatus"] + cluster.calls["n3.ClusterStatus"]

        before = asked()
        await cluster.until(lambda: asked() >= before + 4)
        assert consumer.reconnects == 0


async def test_a_refused_subscription_is_an_error_of_the_start(cluster: ClusterStandIn) -> None:
    async def no_topic(*_: Any) -> Any:
        await refuse(_[2], grpc.StatusCode.INVALID_ARGUMENT, "TOPIC_INVALID")
        yield

    cluster.on_consume = no_topic
    async with connect(cluster.addresses) as client:
        with pytest.raises(InvalidName):
            await client.consumer("", "g").start()


async def test_no_leader_to_subscribe_at_is_unavailable_at_the_deadline(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    cluster.lead(None)
    async with connect(cluster.addresses, deadline_ms=300) as client:
        with pytest.raises(Unavailable):
            await client.consumer("orders", "g").start()


async def test_being_replaced_ends_the_iteration_with_an_error(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    async def replaced(context: Any) -> None:
        await refuse(context, grpc.StatusCode.ABORTED, "CONSUMER_REPLACED")

    async with connect(cluster.addresses) as client, client.consumer("orders", "g") as consumer:
        await group.deliver(range(1))
        await take(consumer, 1)
        await group.end(replaced)
        with pytest.raises(ConsumerReplaced):
            await take(consumer, 1)
    assert len(group.subscribed) == 1  # it does not fight for the name


async def test_closing_sends_the_last_acks_and_ends_the_iteration(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    async with connect(cluster.addresses) as client:
        consumer = client.consumer("orders", "g")
        await consumer.start()
        await group.deliver(range(2))
        first, second = await take(consumer, 2)
        first.ack_soon()
        await consumer.close()
        assert group.acked() == [0]
        with pytest.raises(StopAsyncIteration):
            await anext(consumer)
        with pytest.raises(Closed):
            second.ack()


async def test_closing_wakes_who_waits_for_a_message(cluster: ClusterStandIn, group: GroupStandIn) -> None:
    async with connect(cluster.addresses) as client:
        consumer = client.consumer("orders", "g")
        await consumer.start()

        async def consume() -> list[Message]:
            return [message async for message in consumer]

        waiting = asyncio.ensure_future(consume())
        await asyncio.sleep(0)
        await consumer.close()
        assert await asyncio.wait_for(waiting, 5) == []


async def test_several_tasks_share_a_consumer_and_each_message_goes_to_one(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    async with connect(cluster.addresses) as client, client.consumer("orders", "g") as consumer:
        tasks = [asyncio.ensure_future(take(consumer, 5)) for _ in range(4)]
        for start in range(0, 20, 2):
            await group.deliver(range(start, start + 2))
        seen = [message.offset for task in tasks for message in await task]
    assert sorted(seen) == list(range(20))


async def test_dedupe_keeps_back_what_was_acked_before_and_acks_it_again(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    async with connect(cluster.addresses) as client, client.consumer("orders", "g", dedupe=True) as consumer:
        await group.deliver(range(3))
        first, *_ = await take(consumer, 3)
        await first.ack()
        await group.deliver(range(5), maybe_duplicate=[0, 1, 2])
        assert [message.offset for message in await take(consumer, 2)] == [3, 4]
        assert consumer.duplicates_dropped == 3
        await group.until(lambda: group.acked() == [0, 0])  # 1 and 2 are still their holder's to ack


async def test_dedupe_lets_the_holder_of_a_lost_message_ack_it_when_it_comes_again(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    group.resume = lambda _: []
    async with connect(cluster.addresses) as client, client.consumer("orders", "g", dedupe=True) as consumer:
        await group.deliver(range(1))
        (message,) = await take(consumer, 1)
        await group.end(break_off)
        await group.until(lambda: len(group.subscribed) == 2)
        await group.deliver(range(2), maybe_duplicate=[0])
        assert (await take(consumer, 1))[0].offset == 1
        assert await message.ack() is AckOutcome.OK


async def test_without_dedupe_a_repeated_delivery_is_handed_out_marked(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    async with connect(cluster.addresses) as client, client.consumer("orders", "g") as consumer:
        await group.deliver(range(1))
        await (await take(consumer, 1))[0].ack()
        await group.deliver(range(1), maybe_duplicate=[0])
        (again,) = await take(consumer, 1)
        assert again.maybe_duplicate
        assert await again.ack() is AckOutcome.OK
