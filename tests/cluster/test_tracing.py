"""Traces over a real node: a message's context outlasts the wheel, retries and its death."""

from __future__ import annotations

import asyncio

import pytest

from tarry.client import aio, sync
from tarry.client.local.cluster import LocalCluster
from tests.client.spans_kept import Spans, attributes, carried_by, identity, linked
from tests.cluster.test_upgrade import level

pytestmark = pytest.mark.beside

PATIENCE_S = 20


async def test_retries_and_the_dead_letter_are_linked_to_the_schedule(lone_cluster: LocalCluster) -> None:
    spans = Spans()
    await level(lone_cluster, 2)
    async with (
        asyncio.timeout(PATIENCE_S),
        aio.connect(lone_cluster.addresses, tracing=spans.tracing) as client,
    ):
        await client.operator().create_topic("traced", group_policy={"attempts_max": 2, "back_off": 20})
        scheduled = await client.producer().schedule("traced", b"x", delay_ms=50, properties={"a": "1"})
        async with client.consumer("traced", "g") as consumer, client.consumer("dlq.g.traced", "u") as dead:
            for _ in range(2):
                message = await anext(consumer)
                with message.span():
                    await message.nack()
            letter = await anext(dead)
            with letter.span():
                await letter.ack()
            await client.operator().redrive("dlq.g.traced")
            redriven = await anext(consumer)
            with redriven.span():
                await redriven.ack()
    sent = spans.one("send traced")
    assert attributes(sent, "message.id") == [scheduled.id]
    assert message.properties["a"] == letter.properties["a"] == "1"
    assert letter.properties["tarry.origin_id"] == scheduled.id
    processed = [*spans.all("process traced"), spans.one("process dlq.g.traced")]
    assert list(map(linked, processed)) == [[identity(sent.context)]] * 4
    assert [attributes(span, "tarry.attempt", "tarry.verdict", "tarry.outcome") for span in processed] == [
        [1, "nack", "ok"],
        [2, "nack", "ok"],
        [1, "ack", "ok"],
        [1, "ack", "ok"],
    ]
    assert len({identity(span.context)[0] for span in (sent, *processed)}) == 5


async def test_the_processing_is_a_child_of_the_schedule_where_that_is_asked_for(
    lone_cluster: LocalCluster,
) -> None:
    spans = Spans(same_trace=True)
    async with (
        asyncio.timeout(PATIENCE_S),
        aio.connect(lone_cluster.addresses, tracing=spans.tracing) as client,
        client.consumer("traced-child", "g") as consumer,
    ):
        await client.producer().schedule("traced-child", b"x", delay_ms=0)
        message = await anext(consumer)
        with message.span():
            message.ack_soon()
    sent, processed = spans.one("send traced-child"), spans.one("process traced-child")
    assert processed.parent is not None
    assert identity(processed.parent) == identity(sent.context)
    assert linked(processed) == [identity(sent.context)]


async def test_a_batch_carries_one_context_and_its_bodies_come_as_they_were(
    lone_cluster: LocalCluster,
) -> None:
    spans = Spans()
    bodies = [b"", b"x", b"y" * 127, b"z" * 20_000, *(b"%d" % n for n in range(96))]
    received: list[bytes] = []
    async with (
        asyncio.timeout(PATIENCE_S),
        aio.connect(lone_cluster.addresses, tracing=spans.tracing) as client,
        client.consumer("traced-batch", "g") as consumer,
    ):
        await client.producer().schedule_batch("traced-batch", bodies, delay_ms=50)
        while len(received) < len(bodies):
            batch = await consumer.next_batch()
            assert batch is not None
            with batch.span():
                received += batch.bodies
                await batch.ack()
    assert sorted(received) == sorted(bodies)
    sent = spans.one("send traced-batch")
    processed = spans.all("process traced-batch")
    assert {tuple(linked(span)) for span in processed} == {(identity(sent.context),)}
    assert {tuple(attributes(span, "tarry.verdict", "tarry.outcome")) for span in processed} == {
        ("ack", "ok")
    }


async def test_a_message_with_all_the_properties_that_the_cluster_takes_goes_without_context(
    lone_cluster: LocalCluster,
) -> None:
    spans = Spans()
    nearly, full = ({f"p{n}": "" for n in range(count)} for count in (63, 64))
    async with (
        asyncio.timeout(PATIENCE_S),
        aio.connect(lone_cluster.addresses, tracing=spans.tracing) as client,
    ):
        producer = client.producer()
        one, other = await asyncio.gather(
            producer.schedule("traced-full", b"", delay_ms=60_000, properties=nearly),
            producer.schedule("traced-full", b"", delay_ms=60_000, properties=full),
        )
        batch = await producer.schedule_batch("traced-full", [b""], delay_ms=60_000, properties=[full])
        roomy, crowded, crowded_batch = [
            dict((await producer.get(found)).properties) for found in (one.id, other.id, *batch.ids)
        ]
        with pytest.raises(aio.TarryError, match="65 properties"):
            await producer.schedule("traced-full", b"", delay_ms=60_000, properties=full | {"one more": ""})
    contexts = [identity(span.context) for span in spans.all("send traced-full")]
    assert carried_by(roomy) in contexts
    assert crowded == crowded_batch == full


async def test_what_a_puller_receives_settles_and_processes_is_traced(lone_cluster: LocalCluster) -> None:
    spans = Spans()
    async with (
        asyncio.timeout(PATIENCE_S),
        aio.connect(lone_cluster.addresses, tracing=spans.tracing) as client,
    ):
        await client.producer().schedule("traced-pull", b"x", delay_ms=0)
        puller = client.puller("traced-pull", "g", lease_ms=60_000)
        (message,) = await puller.receive(1, wait_ms=10_000)
        with message.span():
            assert await puller.extend([message], 60_000) == [aio.AckOutcome.OK]
            assert await puller.ack([message]) == [aio.AckOutcome.OK]
        assert await puller.receive(1) == []
    sent, received = spans.one("send traced-pull"), spans.one("receive traced-pull")
    processed = spans.one("process traced-pull")
    assert linked(received) == linked(processed) == [identity(sent.context)]
    assert attributes(received, "batch.message_count", "consumer.group.name") == [1, "g"]
    assert attributes(processed, "tarry.verdict", "tarry.outcome") == ["ack", "ok"]
    assert [event.name for event in processed.events] == ["extend"]


def test_the_blocking_client_traces_from_schedule_to_verdict(lone_cluster: LocalCluster) -> None:
    spans = Spans()
    with (
        sync.connect(lone_cluster.addresses, tracing=spans.tracing) as client,
        client.producer() as producer,
        client.consumer("traced-sync", "g") as consumer,
    ):
        with spans.tracer.start_as_current_span("request") as request:
            producer.schedule("traced-sync", b"x", delay_ms=0)
        message = consumer.receive(10_000)
        assert message is not None
        with message.span():
            assert message.nack(delay_ms=0) is sync.AckOutcome.OK
        again = consumer.receive(10_000)
        assert again is not None
        with again.span():
            pass
    sent = spans.one("send traced-sync")
    assert sent.parent is not None
    assert identity(sent.parent) == identity(request.get_span_context())
    first, second = spans.all("process traced-sync")
    assert linked(first) == linked(second) == [identity(sent.context)]
    assert attributes(first, "tarry.attempt", "tarry.verdict", "tarry.outcome") == [1, "nack", "ok"]
    assert attributes(second, "tarry.attempt", "tarry.verdict") == [2, None]
