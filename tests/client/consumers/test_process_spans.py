"""Spans of a consumer: linked to schedules, or their children; verdicts, errors, and no delivery broken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import SpanKind, StatusCode

from tarry.client import sync
from tarry.client.aio import Message, connect
from tarry.client.consumers.message import Columns
from tarry.client.consumers.process_spans import ProcessSpans
from tarry.client.consumers.unsettled import AckOutcome
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto.tarry_message_pb2 import Record
from tests.client.spans_kept import Spans, attributes, carried_by, identity, linked, propagating_by
from tests.client.stand_in import ClusterStandIn, GroupStandIn, take

THEIRS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHERS = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"


def record(body: bytes = b"b", **properties: str) -> bytes:
    return Record(body=body, properties=properties).SerializeToString()


async def test_a_schedule_and_its_processing_are_linked_spans_of_two_traces(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    spans = Spans()
    async with (
        connect(cluster.addresses, tracing=spans.tracing) as client,
        client.consumer("orders", "mailer", name="c1") as consumer,
    ):
        await client.producer().schedule("orders", b"b", delay_ms=5)
        await group.deliver(range(1), records=cluster.scheduled, attempt=[3])
        (message,) = await take(consumer, 1)
        with message.span() as inside:
            assert trace.get_current_span() is inside
            assert message.body == b"b"
        assert not trace.get_current_span().get_span_context().is_valid
    sent, processed = spans.one("send orders"), spans.one("process orders")
    assert processed.kind is SpanKind.CONSUMER
    assert processed.parent is None
    assert linked(processed) == [identity(sent.context)]
    assert identity(processed.context)[0] != identity(sent.context)[0]
    assert dict(processed.attributes or {}) == {
        "messaging.system": "tarry",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.consumer.group.name": "mailer",
        "messaging.client.id": "c1",
        "messaging.message.id": message.id,
        "messaging.tarry.due_ms": message.due_ms,
        "messaging.tarry.attempt": 3,
    }


async def process(spans: Spans, group: GroupStandIn, client: Any, **properties: str) -> None:
    """Receive one message with these properties, and process it inside another span."""
    async with client.consumer("orders", "g") as consumer:
        await group.deliver(range(1), records=[record(**properties)])
        (message,) = await take(consumer, 1)
        with spans.tracer.start_as_current_span("worker"), message.span():
            pass


@pytest.mark.parametrize("same_trace", [False, True])
async def test_inside_another_span_either_is_the_parent_as_the_application_chose(
    cluster: ClusterStandIn, group: GroupStandIn, same_trace: bool
) -> None:
    spans = Spans(same_trace=same_trace)
    async with connect(cluster.addresses, tracing=spans.tracing) as client:
        await process(spans, group, client, traceparent=THEIRS)
    processed, worker = spans.one("process orders"), identity(spans.one("worker").context)
    theirs = carried_by({"traceparent": THEIRS})
    assert processed.parent is not None
    assert identity(processed.parent) == (theirs if same_trace else worker)
    assert linked(processed) == ([theirs, worker] if same_trace else [theirs])


@pytest.mark.parametrize("same_trace", [False, True])
async def test_a_message_without_context_is_processed_in_the_current_trace(
    cluster: ClusterStandIn, group: GroupStandIn, same_trace: bool
) -> None:
    spans = Spans(same_trace=same_trace)
    async with connect(cluster.addresses, tracing=spans.tracing) as client:
        await process(spans, group, client)
    processed = spans.one("process orders")
    assert processed.parent is not None
    assert identity(processed.parent) == identity(spans.one("worker").context)
    assert linked(processed) == []


async def test_baggage_is_restored_for_the_processing_only(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    spans = Spans()
    async with (
        connect(cluster.addresses, tracing=spans.tracing) as client,
        client.consumer("orders", "g") as consumer,
    ):
        await group.deliver(range(1), records=[record(baggage="tenant=blue")])
        (message,) = await take(consumer, 1)
        token = context.attach(baggage.set_baggage("region", "north"))
        with message.span():
            assert dict(baggage.get_all()) == {"tenant": "blue", "region": "north"}
        assert dict(baggage.get_all()) == {"region": "north"}
        context.detach(token)


@pytest.mark.parametrize(
    "properties",
    [
        {"traceparent": ""},
        {"traceparent": "nonsense"},
        {"traceparent": "00-" + "0" * 32 + "-" + "0" * 16 + "-01"},
        {"traceparent": "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
        {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-zz"},
        {"traceparent": "00-" + "é" * 32 + "-b7ad6b7169203331-01"},
        {"traceparent": "x" * 60_000},
        {"tracestate": "a=1"},
        {"baggage": "=,;=" * 5_000},
        {"baggage": "\x00%%%=%zz"},
    ],
)
async def test_malformed_context_breaks_no_delivery(
    cluster: ClusterStandIn, group: GroupStandIn, properties: dict[str, str]
) -> None:
    spans = Spans()
    async with connect(cluster.addresses, tracing=spans.tracing) as client:
        await process(spans, group, client, **properties)
    assert linked(spans.one("process orders")) == []


@pytest.mark.parametrize("tracestate", ["", "=", "a=1,,a=1", "\n", "é=1", ",".join(["a=1"] * 99)])
@pytest.mark.parametrize("flags", ["00", "01", "ff"])
async def test_a_context_with_a_malformed_rest_breaks_no_delivery(
    cluster: ClusterStandIn, group: GroupStandIn, tracestate: str, flags: str
) -> None:
    spans = Spans()
    async with connect(cluster.addresses, tracing=spans.tracing) as client:
        await process(spans, group, client, traceparent=f"{THEIRS[:-2]}{flags}", tracestate=tracestate)
    assert spans.one("process orders").status.status_code is StatusCode.UNSET


class Raising(TextMapPropagator):
    """Propagator that cannot stand what it reads."""

    def extract(self, *_: Any, **__: Any) -> context.Context:
        raise ValueError("invalid literal for int()")

    def inject(self, *_: Any, **__: Any) -> None: ...

    @property
    def fields(self) -> set[str]:
        return {"traceparent"}


async def test_a_propagator_that_raises_breaks_no_delivery(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    spans = Spans()
    async with connect(cluster.addresses, tracing=spans.tracing) as client:
        with propagating_by(Raising()):
            await process(spans, group, client, traceparent=THEIRS)
    assert linked(spans.one("process orders")) == []


async def ack(message: Message) -> None:
    await message.ack()


async def ack_soon(message: Message) -> None:
    message.ack_soon()


async def nack(message: Message) -> None:
    await message.nack(delay_ms=5)


async def ack_twice(message: Message) -> None:
    await message.ack()
    assert await message.ack() is AckOutcome.STALE


async def change_its_mind(message: Message) -> None:
    message.ack_soon()
    await message.nack()


@pytest.mark.parametrize(
    ("settle", "verdict", "outcome"),
    [
        (ack, "ack", "ok"),
        (ack_soon, "ack", None),
        (nack, "nack", "ok"),
        (ack_twice, "ack", "stale"),
        (change_its_mind, "mixed", "stale"),
    ],
)
async def test_the_span_says_what_the_verdict_was_and_what_came_of_it(
    cluster: ClusterStandIn,
    group: GroupStandIn,
    settle: Callable[[Message], Awaitable[None]],
    verdict: str,
    outcome: str | None,
) -> None:
    spans = Spans()
    async with (
        connect(cluster.addresses, tracing=spans.tracing) as client,
        client.consumer("orders", "g") as consumer,
    ):
        await group.deliver(range(1))
        (message,) = await take(consumer, 1)
        with message.span():
            await settle(message)
    span = spans.one("process orders")
    assert attributes(span, "tarry.verdict", "tarry.outcome") == [verdict, outcome]
    assert span.status.status_code is StatusCode.UNSET


async def test_an_extension_is_an_event_and_no_verdict(cluster: ClusterStandIn, group: GroupStandIn) -> None:
    spans = Spans()
    async with (
        connect(cluster.addresses, tracing=spans.tracing) as client,
        client.consumer("orders", "g") as consumer,
    ):
        await group.deliver(range(1))
        (message,) = await take(consumer, 1)
        with message.span():
            assert await message.extend(60_000) is AckOutcome.OK
        assert await message.ack() is AckOutcome.OK  # outside: the span is over
    span = spans.one("process orders")
    assert attributes(span, "tarry.verdict", "tarry.outcome") == [None, None]
    assert [(event.name, dict(event.attributes or {})) for event in span.events] == [
        ("extend", {"messaging.tarry.lease_ms": 60_000})
    ]
    assert group.acked() == [0]


async def test_an_error_of_the_application_is_that_of_the_span_and_settles_nothing(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    spans = Spans()
    async with (
        connect(cluster.addresses, tracing=spans.tracing) as client,
        client.consumer("orders", "g") as consumer,
    ):
        await group.deliver(range(1))
        (message,) = await take(consumer, 1)
        with pytest.raises(LookupError, match="no such customer"), message.span():
            raise LookupError("no such customer")
        assert consumer.in_hand == 1
    span = spans.one("process orders")
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "LookupError"
    assert [event.name for event in span.events] == ["exception"]


async def test_a_batch_is_one_span_linked_to_every_schedule_once(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    spans = Spans()
    records = [record(traceparent=each) for each in (THEIRS, THEIRS, OTHERS, THEIRS, "x")] + [record()]
    async with (
        connect(cluster.addresses, tracing=spans.tracing) as client,
        client.consumer("orders", "g") as consumer,
    ):
        await group.deliver(range(6), records=records)
        batch = await consumer.next_batch()
        assert batch is not None
        with batch.span():
            first, *others = batch
            first.ack_soon()
            for message in others:
                await message.nack()
    span = spans.one("process orders")
    assert linked(span) == [carried_by({"traceparent": each}) for each in (THEIRS, OTHERS)]
    assert attributes(span, "batch.message_count", "message.id") == [6, None]
    assert attributes(span, "tarry.verdict", "tarry.outcome") == ["mixed", "ok"]


async def test_a_batch_settled_whole_says_the_worst_outcome(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    spans = Spans()
    group.stale = {1}
    async with (
        connect(cluster.addresses, tracing=spans.tracing) as client,
        client.consumer("orders", "g") as consumer,
    ):
        await group.deliver(range(3))
        batch = await consumer.next_batch()
        assert batch is not None
        with batch.span():
            await batch.ack()
    assert attributes(spans.one("process orders"), "tarry.verdict", "tarry.outcome") == ["ack", "stale"]


async def test_a_client_that_does_not_trace_gives_no_span_and_runs_the_same_code(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    async with connect(cluster.addresses) as client, client.consumer("orders", "g") as consumer:
        await group.deliver(range(2), records=[record(traceparent=THEIRS)] * 2)
        (message,) = await take(consumer, 1)
        with message.span() as span:
            assert span is None
            assert await message.ack() is AckOutcome.OK
        with message.batch.span() as span:  # type: ignore[attr-defined]
            assert span is None


async def test_tasks_process_messages_of_one_consumer_in_spans_of_their_own(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    spans = Spans()

    async def work(message: Message) -> None:
        with message.span() as span:
            await message.ack()
            assert trace.get_current_span() is span

    async with (
        connect(cluster.addresses, tracing=spans.tracing) as client,
        client.consumer("orders", "g") as consumer,
    ):
        await group.deliver(range(5))
        await asyncio.gather(*map(work, await take(consumer, 5)))
    assert [span.parent for span in spans] == [None] * 5
    assert {attributes(span, "tarry.verdict")[0] for span in spans} == {"ack"}


def blocking(servers: str, spans: Spans, batches: bool) -> None:
    """Acknowledge without waiting two messages or batches that are each the whole of a delivery."""
    with (
        sync.connect(servers, tracing=spans.tracing) as client,
        client.consumer("orders", "g") as consumer,
    ):
        for each in consumer.batches() if batches else consumer:
            with each.span() as span:
                assert trace.get_current_span() is span
                each.ack_soon()
            if len(spans.all("process orders")) == 2:
                return


@pytest.mark.parametrize("batches", [False, True])
async def test_the_blocking_client_notes_an_ack_that_its_loop_has_not_come_to(
    cluster: ClusterStandIn, group: GroupStandIn, batches: bool
) -> None:
    spans = Spans()
    working = asyncio.create_task(asyncio.to_thread(blocking, cluster.addresses, spans, batches))
    for offset in range(2):
        await group.deliver(range(offset, offset + 1), records=[record(traceparent=THEIRS)])
    async with asyncio.timeout(20):
        await working
    for span in spans.all("process orders"):
        assert linked(span) == [carried_by({"traceparent": THEIRS})]
        assert attributes(span, "tarry.verdict") == ["ack"]
    assert sorted(group.acked()) == [0, 1]


async def test_the_blocking_client_notes_messages_of_a_batch_and_awaited_outcomes(
    cluster: ClusterStandIn, group: GroupStandIn
) -> None:
    spans = Spans()
    group.stale = {1}

    def work() -> None:
        with (
            sync.connect(cluster.addresses, tracing=spans.tracing) as client,
            client.consumer("orders", "g") as consumer,
        ):
            batch = next(consumer.batches())
            with batch.span():
                for message in batch:
                    message.ack_soon()
            second = consumer.receive(10_000)
            assert second is not None
            with second.span():
                assert second.ack() is sync.AckOutcome.STALE

    working = asyncio.create_task(asyncio.to_thread(work))
    for offset in range(2):
        await group.deliver(range(offset, offset + 1))
    async with asyncio.timeout(20):
        await working
    found = [attributes(span, "tarry.verdict", "tarry.outcome") for span in spans.all("process orders")]
    assert found == [["ack", None], ["ack", "stale"]]


def test_the_receipt_of_a_puller_is_a_span_from_its_call_on() -> None:
    spans = Spans()
    process = ProcessSpans(spans.tracing, "g", "p1")
    deliveries = consumer_pb.Deliveries(
        topic="orders", offset=range(3), records=[record(traceparent=THEIRS)] * 2 + [record()]
    )
    process.received("orders", [Columns(deliveries, 0, 0, process)], 1_000)
    span = spans.one("receive orders")
    assert (span.kind, span.start_time) == (SpanKind.CLIENT, 1_000)
    assert linked(span) == [carried_by({"traceparent": THEIRS})]
    assert attributes(span, "operation.type", "batch.message_count", "consumer.group.name") == [
        "receive",
        3,
        "g",
    ]
