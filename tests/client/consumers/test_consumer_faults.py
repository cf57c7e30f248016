"""The consumer and what it cannot use: arguments out of range, a fault of its own; what closing forgets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tarry.client.aio import connect
from tarry.client.consumers.unsettled import AckOutcome, Verdict
from tarry.client.errors import InvalidSubscription, InvalidTime, Unavailable
from tests.client.stand_in import ClusterStandIn, GroupStandIn, take


@pytest.mark.parametrize("delay_ms", [1_500.0, -5, 60 * 86_400_000, "1"])
async def test_a_delay_that_no_request_can_carry_is_refused_and_the_stream_goes_on(
    cluster: ClusterStandIn, group: GroupStandIn, delay_ms: Any
) -> None:
    async with connect(cluster.addresses) as client, client.consumer("orders", "g") as consumer:
        await group.deliver(range(1))
        (message,) = await take(consumer, 1)
        with pytest.raises(InvalidTime, match="4294967295"):
            message.nack(delay_ms)
        with pytest.raises(InvalidTime):
            message.batch.nack(delay_ms)  # type: ignore[attr-defined]
        with pytest.raises(InvalidSubscription):
            message.extend(delay_ms)
        with pytest.raises(InvalidSubscription):
            message.batch.extend(delay_ms)  # type: ignore[attr-defined]
        assert await asyncio.wait_for(message.nack(0xFFFFFFFF), 10) is AckOutcome.OK


async def test_what_subscribing_cannot_carry_is_refused_by_name(cluster: ClusterStandIn) -> None:
    async with connect(cluster.addresses) as client:
        for wrong in ({"credit": 1 << 32}, {"credit": 0}, {"lease_ms": -1}, {"in_hand_bytes_max": -1}):
            with pytest.raises(InvalidSubscription, match=next(iter(wrong))):
                client.consumer("orders", "g", **wrong)
        for wrong in ({"messages_max": 0}, {"messages_max": 1 << 32}, {"wait_ms": 1 << 32}):
            with pytest.raises(InvalidSubscription, match=next(iter(wrong))):
                await client.puller("orders", "g").receive(**wrong)


async def test_what_ends_a_task_of_the_stream_reaches_who_waits_for_messages_and_outcomes(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    async with connect(cluster.addresses) as client, client.consumer("orders", "g") as consumer:
        await group.deliver(range(2))
        first, second = await take(consumer, 2)
        consumer._unsettled.settle(Verdict(3, nack=True, delay_ms=-1), 0)  # a fault of the client's own
        outcome = first.batch.ack()  # type: ignore[attr-defined]
        with pytest.raises(ValueError, match="range"):
            await asyncio.wait_for(anext(consumer), 10)
        assert await asyncio.wait_for(outcome, 10) == [AckOutcome.STALE, AckOutcome.UNKNOWN]
        with pytest.raises(ValueError, match="range"):
            second.ack()


async def test_a_client_forgets_what_was_closed_or_never_opened(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    async with connect(cluster.addresses, deadline_ms=1_000) as client:
        async with client.producer(), client.consumer("orders", "g"):
            assert len(client._opened) == 2
        cluster.lead(None)
        with pytest.raises(Unavailable):
            await client.consumer("orders", "g").start()
        assert not client._opened
