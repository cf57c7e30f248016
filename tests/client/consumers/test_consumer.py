"""The consumer: order, acks, credit, and what it makes of a stream that breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from tarry.client.aio import connect
from tarry.client.consumers.message import Message, Stamp
from tarry.client.consumers.unsettled import AckOutcome, FailedAcks
from tarry.client.errors import Closed, InvalidName, Unavailable
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto.tarry_message_pb2 import Record
from tests.client.stand_in import ClusterStandIn, GroupStandIn, refuse, take


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


async def test_a_nack_may_make_a_dead_letter(cluster: ClusterStandIn, group: GroupStandIn) -> None:
    async with connect(cluster.addresses) as client, client.consumer("orders", "g") as consumer:
        await group.deliver(range(2))
        first, second = await take(consumer, 2)
        assert await first.nack(dead_letter=True) is AckOutcome.OK
        assert await second.nack() is AckOutcome.OK
    nacks = [request.nack for request in group.received if request.HasField("nack")]
    assert [(list(n.offset), n.dead_letter) for n in nacks] == [([0], True), ([1], False)]


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
        client.consumer(
            "orders", "g", tags=["x"], filter="a = 1", credit=7, lease_ms=5_000, name="me"
        ) as consumer,
    ):
        assert consumer.lease_ms == 5_000
        await group.until(lambda: bool(group.subscribed))
    (subscribe,) = group.subscribed
    assert (subscribe.topic, subscribe.group, subscribe.consumer) == ("orders", "g", "me")
    assert (list(subscribe.tags), subscribe.credit, subscribe.lease_ms) == (["x"], 7, 5_000)
    assert subscribe.filter == "a = 1"


async def test_acks_that_nobody_awaits_wait_for_company(cluster: ClusterStandIn, group: GroupStandIn) -> None:
    async with (
        connect(cluster.addresses, ack_linger_ms=60_000) as client,
        client.consumer("orders", "g") as consumer,
    ):
        await group.deliver(range(3))
        first, second, third = await take(consumer, 3)
        first.ack_soon()
        assert await second.nack() is AckOutcome.OK  # goes at once, and takes the first along
        assert group.acked() == [0]
        third.ack_soon()
        await group.deliver(range(3, 4))
        await take(consumer, 1)
        assert group.acked() == [0]
    assert group.acked() == [0, 2]


async def test_acks_wait_for_company_no_longer_than_a_quarter_of_their_lease(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    async with (
        connect(cluster.addresses, ack_linger_ms=60_000) as client,
        client.consumer("orders", "g", lease_ms=8_000) as consumer,
    ):
        await group.deliver(range(1))
        (message,) = await take(consumer, 1)
        message.ack_soon()
        timer = consumer._subscription._lingering
        assert timer is not None
        assert timer.when() - asyncio.get_running_loop().time() <= 2.0


async def test_acks_that_nobody_awaits_leave_by_themselves(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    async with (
        connect(cluster.addresses, ack_linger_ms=1) as client,
        client.consumer("orders", "g") as consumer,
    ):
        for offset in range(2):
            await group.deliver(range(offset, offset + 1))
            (message,) = await take(consumer, 1)
            message.ack_soon()
            await group.until(lambda acked=offset + 1: len(group.acked()) == acked)  # type: ignore[misc]


async def test_acks_that_nobody_awaits_are_told_of_where_they_do_not_count(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    group.stale = {1, 2}
    failed: list[FailedAcks] = []
    async with (
        connect(cluster.addresses, ack_linger_ms=1) as client,
        client.consumer("orders", "g", on_ack_failed=failed.append) as consumer,
    ):
        await group.deliver(range(4))
        first, second, third, fourth = await take(consumer, 4)
        first.ack_soon()
        second.ack_soon()
        assert await third.ack() is AckOutcome.STALE  # who waits for it knows
        await group.until(lambda: len(group.acked()) == 3)
        fourth.ack_soon()
        fourth.ack_soon()
        assert await first.ack() is AckOutcome.STALE
    await asyncio.sleep(0)
    assert {(one.topic, one.queue, one.outcome) for one in failed} == {("orders", 3, AckOutcome.STALE)}
    assert [offset for one in failed for offset in one.offsets] == [1, 3]  # 3: acknowledged twice


async def test_acks_that_a_consumer_has_no_answer_to_when_it_closes_are_told_of_and_so_are_later_ones(
    cluster: ClusterStandIn, group: GroupStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.client.consumers.consumer.CLOSE_MS", 1)
    group.answer_acks = False
    failed: list[FailedAcks] = []
    async with (
        connect(cluster.addresses, ack_linger_ms=1) as client,
        client.consumer("orders", "g", on_ack_failed=failed.append) as consumer,
    ):
        await group.deliver(range(4))
        first, *others = await take(consumer, 4)
        first.ack_soon()
    for message in others:
        message.ack_soon()
    with pytest.raises(Closed):
        message.ack()
    await asyncio.sleep(0)
    assert [(one.offsets, one.outcome) for one in failed] == [
        ((0,), AckOutcome.UNKNOWN),
        ((1, 2, 3), AckOutcome.STALE),  # told together
    ]


async def test_failed_acks_are_logged_where_the_application_does_not_ask_for_them(
    cluster: ClusterStandIn, group: GroupStandIn, caplog: pytest.LogCaptureFixture
) -> None:
    group.stale = {0, 1}
    async with (
        connect(cluster.addresses, ack_linger_ms=1) as client,
        client.consumer("orders", "g") as consumer,
    ):
        await group.deliver(range(3))
        for message in await take(consumer, 3):
            message.ack_soon()
    assert [record.getMessage() for record in caplog.records if record.name.startswith("tarry.client")] == [
        "2 acknowledgements of orders are stale: "
        "the messages may be delivered again (queue 3, offsets from 0)"
    ]


async def test_an_error_of_the_application_where_it_is_told_of_an_ack_ends_no_stream(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    errors: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))

    def fault(failed: FailedAcks) -> None:
        raise LookupError(failed.offsets)

    group.stale = {0}
    async with (
        connect(cluster.addresses, ack_linger_ms=1) as client,
        client.consumer("orders", "g", on_ack_failed=fault) as consumer,
    ):
        await group.deliver(range(1))
        (message,) = await take(consumer, 1)
        message.ack_soon()
        await group.deliver(range(1, 2))
        (message,) = await take(consumer, 1)
        assert await message.ack() is AckOutcome.OK
        assert consumer.reconnects == 0
    assert [str(error) for error in errors] == ["(0,)"]


async def test_an_error_of_the_application_hides_no_other_failed_acks(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    errors: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))

    def fault(failed: FailedAcks) -> None:
        raise LookupError(failed.queue)

    async with connect(cluster.addresses) as client:
        async with client.consumer("orders", "g", on_ack_failed=fault) as consumer:
            for queue in (3, 4):
                await group.deliver(range(1), queue)
            messages = await take(consumer, 2)
        for message in messages:
            message.ack_soon()
        await asyncio.sleep(0)
    assert [str(error) for error in errors] == ["3", "4"]


@pytest.mark.parametrize("waits", [{"ordered": True}, {"in_hand_bytes_max": 1}])
async def test_acks_do_not_wait_where_the_cluster_waits_for_them(
    cluster: ClusterStandIn, group: GroupStandIn, waits: dict[str, Any]
) -> None:
    in_hand_bytes_max = waits.pop("in_hand_bytes_max", 0)
    async with (
        connect(cluster.addresses, ack_linger_ms=60_000) as client,
        client.consumer("orders", "g", in_hand_bytes_max=in_hand_bytes_max) as consumer,
    ):
        await group.deliver(range(1), **waits)
        (message,) = await take(consumer, 1)
        message.ack_soon()
        await group.until(lambda: group.acked() == [0])


async def test_credit_comes_back_as_messages_are_acked(cluster: ClusterStandIn, group: GroupStandIn) -> None:
    async with (
        connect(cluster.addresses, ack_linger_ms=60_000) as client,
        client.consumer("orders", "g", credit=4) as consumer,
    ):
        await group.deliver(range(3))
        messages = await take(consumer, 3)
        assert group.credit() == 0  # all three are still in hand
        for message in messages:
            message.ack_soon()
        await group.until(lambda: group.credit() == 3)


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
    async with connect(cluster.addresses, deadline_ms=500) as client:
        with pytest.raises(Unavailable):
            await client.consumer("orders", "g").start()


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


async def test_who_closes_a_consumer_that_is_being_closed_waits_for_that(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    async with connect(cluster.addresses) as client, client.consumer("orders", "g") as consumer:
        await group.deliver(range(1))
        (message,) = await take(consumer, 1)
        message.ack()
        first = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        await client.close()
        assert first.done()
        assert group.acked() == [0]


async def test_closing_that_is_cancelled_as_its_last_answer_comes_is_cancelled(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    async with connect(cluster.addresses) as client, client.consumer("orders", "g") as consumer:
        await group.deliver(range(1))
        (message,) = await take(consumer, 1)
        acked = message.ack()
        closing = asyncio.create_task(consumer.close())
        acked.add_done_callback(lambda _: closing.cancel())
        with pytest.raises(asyncio.CancelledError):
            await closing


async def test_a_start_that_is_cancelled_leaves_no_stream_behind(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    begun = asyncio.Event()

    async def say_nothing(*_: Any) -> AsyncIterator[consumer_pb.ConsumeResponse]:
        begun.set()
        await asyncio.Event().wait()
        yield consumer_pb.ConsumeResponse()

    cluster.on_consume = say_nothing
    async with connect(cluster.addresses) as client:
        starting = asyncio.create_task(client.consumer("orders", "g").start())
        await begun.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert [task for task in asyncio.all_tasks() if "Subscription" in repr(task.get_coro())] == []


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


async def test_a_start_under_way_ends_as_the_consumer_is_closed() -> None:
    async with connect("127.0.0.1:1", deadline_ms=60_000) as client:
        consumer = client.consumer("orders", "g")
        start = asyncio.ensure_future(consumer.start())
        for _ in range(3):
            await asyncio.sleep(0)
        await consumer.close()
        with pytest.raises(Closed, match="consumer"):
            async with asyncio.timeout(10):
                await start
