"""Batches of several topics: one request, all or none, and a position in what is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from tarry.client import sync
from tarry.client.aio import NewMessage, connect
from tarry.client.errors import InvalidBatch, InvalidTime, PartlyScheduled, Refused
from tarry.client.records import body_of
from tarry.proto import tarry_producer_pb2 as producer_pb
from tarry.proto.tarry_message_pb2 import Record
from tests.client.stand_in import ClusterStandIn, NodeStandIn, refuse


async def test_messages_of_several_topics_are_one_request_with_a_topic_each(cluster: ClusterStandIn) -> None:
    async with connect(cluster.addresses) as client:
        scheduled = await client.producer().schedule_many(
            [
                NewMessage("orders", b"pay", delay_ms=1, tags=["spring"], keys=["o-7"]),
                NewMessage("mails", b"hello", delay_ms=2, jitter_ms=5, ordering_key="anna"),
                NewMessage("orders", b"ship", delay_ms=3),
            ]
        )
    (request,) = cluster.requests
    assert (list(request.topics), list(request.topic)) == (["orders", "mails"], [0, 1, 0])
    assert (list(request.delay_ms), list(request.jitter_ms)) == ([1, 2, 3], [0, 5, 0])
    records = list(map(Record.FromString, request.records))
    assert [record.body for record in records] == [b"pay", b"hello", b"ship"]
    assert [list(record.keys) for record in records] == [["o-7"], [], []]
    assert [record.ordering_key for record in records] == ["", "anna", ""]
    assert len(set(scheduled.ids)) == 3


async def test_the_blocking_client_schedules_to_several_topics(cluster: ClusterStandIn) -> None:
    def schedule() -> tuple[int, int]:
        with sync.connect(cluster.addresses) as client, client.producer(selector=lambda _: "k") as producer:
            batch = producer.schedule_batch(["a", "b"], [b"1", b"2"], delay_ms=5)
            return len(batch), len(producer.schedule_many([sync.NewMessage("a", b"3", delay_ms=5)]))

    assert await asyncio.to_thread(schedule) == (2, 1)
    assert [Record.FromString(record).ordering_key for record in cluster.scheduled] == ["k", "k", "k"]


async def test_each_piece_of_a_large_batch_names_its_own_topics_alone(cluster: ClusterStandIn) -> None:
    topics = [f"t-{n}" for n in range(5)]
    async with connect(cluster.addresses, batch_messages_max=2) as client:
        await client.producer().schedule_batch(topics, [b"x"] * 5, delay_ms=1)
    named = sorted(tuple(request.topics) for request in cluster.requests)
    assert named == [("t-0", "t-1"), ("t-2", "t-3"), ("t-4",)]


async def test_one_bad_topic_refuses_all_and_says_which_message(cluster: ClusterStandIn) -> None:
    async def hook(_: NodeStandIn, request: producer_pb.ScheduleBatchRequest, context: Any) -> None:
        if "full" in request.topics:
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "RECORD_TOO_LARGE", {"position": "1"})

    cluster.before_schedule = hook
    async with connect(cluster.addresses) as client:
        with pytest.raises(Refused) as refused:
            messages = [NewMessage("orders", b"a", delay_ms=1), NewMessage("full", b"b", delay_ms=1)]
            await client.producer().schedule_many(messages)
    assert refused.value.facts["position"] == "1"
    assert not cluster.scheduled


async def test_of_pieces_the_error_says_which_were_taken(cluster: ClusterStandIn) -> None:
    async def hook(_: NodeStandIn, request: producer_pb.ScheduleBatchRequest, context: Any) -> None:
        if "full" in request.topics:
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "RECORD_TOO_LARGE")

    cluster.before_schedule = hook
    async with connect(cluster.addresses, batch_messages_max=1) as client:
        with pytest.raises(PartlyScheduled) as partly:
            await client.producer().schedule_batch(["orders", "full"], [b"a", b"b"], delay_ms=1)
    assert partly.value.starts == [0, 1]
    assert list(map(body_of, cluster.scheduled)) == [b"a"]


async def test_a_bad_message_of_another_topic_fails_alone_in_a_shared_request(
    cluster: ClusterStandIn,
) -> None:
    """A part of a shared request names no topic that its messages do not have: nodes refuse such a one."""

    async def hook(_: NodeStandIn, request: producer_pb.ScheduleBatchRequest, context: Any) -> None:
        if len(request.topics) > len(request.records) or "bad" in request.topics:
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "COLUMNS_DIFFER")

    cluster.before_schedule = hook
    async with connect(cluster.addresses) as client:
        producer = client.producer()
        sent = [producer.schedule(topic, b"x", delay_ms=1) for topic in ("a", "bad", "b")]
        with pytest.raises(Refused):
            await sent[1]
        assert (await sent[0]).id != (await sent[2]).id
    assert len(cluster.scheduled) == 2


async def test_what_no_request_can_hold_is_refused_before_it_is_sent(cluster: ClusterStandIn) -> None:
    mixed = [NewMessage("a", delay_ms=1), NewMessage("b", due_ms=1)]
    async with connect(cluster.addresses) as client:
        producer = client.producer()
        with pytest.raises(InvalidTime) as ambiguous:
            await producer.schedule_many(mixed)
        assert (ambiguous.value.reason, ambiguous.value.facts["position"]) == ("DUE_AMBIGUOUS", "1")
        with pytest.raises(InvalidTime, match="give one of"):
            await producer.schedule_many([NewMessage("a")])
        with pytest.raises(InvalidBatch, match="no message"):
            await producer.schedule_many([])
        with pytest.raises(InvalidBatch, match="1 bodies but 2 topics"):
            await producer.schedule_batch(["a", "b"], [b""], delay_ms=1)
        with pytest.raises(InvalidBatch, match="idempotency"):
            keyed = [NewMessage("a", delay_ms=1, idempotency_key="k"), NewMessage("b", delay_ms=1)]
            await producer.schedule_many(keyed)
    assert not cluster.requests
