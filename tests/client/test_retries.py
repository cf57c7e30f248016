"""Retries: another node, after a pause, until the deadline; and never twice."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from tarry.client.aio import connect
from tarry.client.errors import (
    OutcomeUnknown,
    Unavailable,
)
from tarry.client.records import body_of
from tarry.client.results import Scheduled
from tests.client.stand_in import ClusterStandIn, NodeStandIn, refuse


async def test_a_lost_answer_is_found_again_and_nothing_is_scheduled_twice(cluster: ClusterStandIn) -> None:
    lost = 2

    async def lose(node: NodeStandIn, request: Any, context: Any) -> None:
        nonlocal lost
        if lost:
            lost -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")

    cluster.on_schedule = lose
    async with connect(cluster.addresses) as client:
        scheduled = await client.producer().schedule("orders", b"once", delay_ms=5)
    assert scheduled.repeated
    assert len(cluster.scheduled) == 1
    assert {(r.producer, r.sequence) for r in cluster.requests} == {(cluster.requests[0].producer, 1)}
    assert len(cluster.requests) == 3


async def test_the_leader_is_asked_directly_and_followed_when_it_moves(cluster: ClusterStandIn) -> None:
    async with connect(cluster.addresses) as client:
        producer = client.producer()
        await producer.schedule("orders", delay_ms=1)
        cluster.lead(cluster.nodes[2])
        await producer.schedule("orders", delay_ms=1)
        await producer.schedule("orders", delay_ms=1)
    assert cluster.calls["n1.ScheduleBatch"] == 2  # the second was redirected
    assert cluster.calls["n2.ScheduleBatch"] == 0
    assert cluster.calls["n3.ScheduleBatch"] == 2


async def test_one_address_is_enough_to_find_all(cluster: ClusterStandIn) -> None:
    cluster.lead(cluster.nodes[2])
    async with connect(cluster.nodes[0].address) as client:
        await client.producer().schedule("orders", delay_ms=1)
    assert cluster.calls["n3.ScheduleBatch"] == 1


async def test_without_discovery_only_the_given_addresses_are_called(cluster: ClusterStandIn) -> None:
    cluster.lead(cluster.nodes[2])
    async with connect(cluster.nodes[0].address, discover=False, deadline_ms=500) as client:
        with pytest.raises(Unavailable):
            await client.producer().schedule("orders", delay_ms=1)
    assert not [call for call in cluster.calls if not call.startswith("n1.")]


async def test_a_leader_that_died_is_left_for_the_next(cluster: ClusterStandIn) -> None:
    async with connect(cluster.addresses) as client:
        producer = client.producer()
        await producer.schedule("orders", b"a", delay_ms=1)
        await cluster.nodes[0].stop()
        cluster.lead(cluster.nodes[1])
        await producer.schedule("orders", b"b", delay_ms=1)
    assert list(map(body_of, cluster.scheduled)) == [b"a", b"b"]


async def test_a_silent_leader_is_left_after_one_attempt(cluster: ClusterStandIn) -> None:
    async with connect(cluster.addresses, attempt_ms=200) as client:
        producer = client.producer()
        await producer.schedule("orders", b"a", delay_ms=1)
        cluster.nodes[0].silent = True
        cluster.lead(cluster.nodes[1])
        await asyncio.wait_for(producer.schedule("orders", b"b", delay_ms=1), 3)
    assert len(cluster.scheduled) == 2


async def test_a_call_to_a_leader_that_fell_silent_is_given_up_when_another_leads(
    cluster: ClusterStandIn,
) -> None:
    async with connect(cluster.addresses, attempt_ms=15_000, watch_ms=30) as client:
        producer = client.producer()
        await producer.schedule("orders", b"a", delay_ms=1)
        cluster.nodes[0].silent = True
        cluster.lead(cluster.nodes[1])
        await asyncio.wait_for(producer.schedule("orders", b"b", delay_ms=1), 3)
    assert cluster.requests[-1].sequence == 2
    assert len(cluster.scheduled) == 2


async def test_a_call_to_a_slow_leader_is_waited_for(cluster: ClusterStandIn) -> None:
    async def slow(*_: object) -> None:
        asked = cluster.calls["n2.ClusterStatus"] + cluster.calls["n3.ClusterStatus"]
        await cluster.until(
            lambda: cluster.calls["n2.ClusterStatus"] + cluster.calls["n3.ClusterStatus"] >= asked + 3
        )

    cluster.before_schedule = slow
    async with connect(cluster.addresses, watch_ms=110) as client:
        scheduled = await client.producer().schedule("orders", b"a", delay_ms=1)
    assert not scheduled.repeated
    assert len(cluster.requests) == 1


async def test_a_call_that_its_caller_cancels_is_cancelled(cluster: ClusterStandIn) -> None:
    cluster.nodes[0].silent = True
    async with connect(cluster.addresses, discover=False) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.producer().get("0000"), 0.05)


async def test_while_no_node_leads_a_call_waits_for_one(cluster: ClusterStandIn) -> None:
    cluster.lead(None)
    async with connect(cluster.addresses) as client:
        answer = client.producer().schedule("orders", delay_ms=1)
        await cluster.until(lambda: bool(cluster.calls["n3.ClusterStatus"]))
        cluster.lead(cluster.nodes[2])
        assert isinstance(await answer, Scheduled)


async def test_at_the_deadline_a_request_that_surely_was_not_done_is_unavailable(
    cluster: ClusterStandIn,
) -> None:
    cluster.lead(None)
    async with connect(cluster.addresses, deadline_ms=500) as client:
        with pytest.raises(Unavailable) as refused:
            await client.producer().schedule("orders", delay_ms=1)
    assert refused.value.reason == "NO_LEADER"


async def test_nobody_there_is_unavailable(cluster: ClusterStandIn) -> None:
    await cluster.stop()
    async with connect(cluster.addresses, deadline_ms=500) as client:
        with pytest.raises(Unavailable) as refused:
            await client.producer().schedule("orders", delay_ms=1)
    assert refused.value.reason == "UNREACHABLE"


async def test_at_the_deadline_a_request_that_may_have_been_done_says_so(cluster: ClusterStandIn) -> None:
    async def lose(node: NodeStandIn, request: Any, context: Any) -> None:
        cluster.lead(None)  # the next attempts surely do nothing: that does not undo this one
        await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")

    cluster.on_schedule = lose
    async with connect(cluster.addresses, deadline_ms=1_000) as client:
        with pytest.raises(OutcomeUnknown):
            await client.producer().schedule("orders", delay_ms=1)
    assert len(cluster.scheduled) == 1


async def test_an_overloaded_cluster_is_given_the_time_it_asks_for(cluster: ClusterStandIn) -> None:
    times: list[float] = []

    async def busy(node: NodeStandIn, request: Any, context: Any) -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) < 3:
            await refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED", retry_ms=80)

    cluster.before_schedule = busy
    async with connect(cluster.addresses) as client:
        await client.producer().schedule("orders", delay_ms=1)
    assert times[1] - times[0] >= 0.08
    assert times[2] - times[1] >= 0.08


async def test_an_answer_that_is_forgotten_is_not_asked_for_again(cluster: ClusterStandIn) -> None:
    async def old(node: NodeStandIn, request: Any, context: Any) -> None:
        await refuse(context, grpc.StatusCode.FAILED_PRECONDITION, "SEQUENCE_TOO_OLD")

    cluster.before_schedule = old
    async with connect(cluster.addresses) as client:
        with pytest.raises(OutcomeUnknown):
            await client.producer().schedule("orders", delay_ms=1)
    assert len(cluster.requests) == 1


async def test_a_slow_transfer_is_waited_for_though_another_leads_by_then(cluster: ClusterStandIn) -> None:
    cluster.transfers_may_end = False
    async with connect(cluster.addresses, watch_ms=20) as client:
        moving = asyncio.ensure_future(client.operator().transfer())
        await cluster.until(lambda: cluster.calls["n1.TransferLeadership"] == 1)
        for asked in range(100):  # longer than a watched call would be left alone
            cluster.transfers_may_end = asked == 99
            await client.operator().status_of(cluster.nodes[1].address)
        assert (await moving).leader == "n3"
    assert sum(count for call, count in cluster.calls.items() if call.endswith("TransferLeadership")) == 1
