"""Reconnects: a consumer's stream breaks, and it goes on at the leader with what it has in hand."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from tarry.client.aio import connect
from tarry.client.consumers.unsettled import AckOutcome, FailedAcks
from tarry.client.errors import ConsumerReplaced
from tests.client.stand_in import ClusterStandIn, GroupStandIn, break_off, refuse, take


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


@pytest.mark.parametrize("dedupe", [False, True])
async def test_in_another_incarnation_an_offset_is_of_another_message(
    cluster: ClusterStandIn, group: GroupStandIn, dedupe: bool
) -> None:
    """The cluster was recovered: what it delivers at 0 to 2 is new, whatever was done with the old."""
    failed: list[FailedAcks] = []
    consumers = {"dedupe": dedupe, "on_ack_failed": failed.append}
    async with connect(cluster.addresses) as client, client.consumer("orders", "g", **consumers) as consumer:
        await group.deliver(range(4))
        acked, held, soon = await take(consumer, 3)  # one more waits in the client
        await acked.ack()
        group.incarnation, group.resume = 7, lambda _: []
        await group.end(break_off)
        await group.until(lambda: len(group.subscribed) == 2)
        assert group.subscribed[1].incarnation == 0
        while not consumer.reconnects:  # noqa: ASYNC110 - the stand-in is told before the client
            await asyncio.sleep(0)
        await group.deliver(range(3), maybe_duplicate=[0, 1, 2])
        new = await take(consumer, 3)
        assert [message.offset for message in new] == [0, 1, 2]
        before = list(group.acked())
        assert await held.ack() is AckOutcome.STALE
        assert await held.batch.ack() == [AckOutcome.STALE] * 4  # type: ignore[attr-defined]
        soon.ack_soon()
        assert await new[1].ack() is AckOutcome.OK
        assert group.acked() == [*before, 1]
        assert [(one.offsets, one.outcome) for one in failed] == [((2,), AckOutcome.STALE)]
        await group.end(break_off)
        await group.until(lambda: len(group.subscribed) == 3)
        assert group.subscribed[2].incarnation == 7
