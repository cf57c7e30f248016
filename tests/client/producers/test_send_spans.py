"""Spans of a producer: what they say, what the records carry, and that nothing is refused because of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import grpc
import pytest
from opentelemetry import baggage, context, propagate
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import SpanKind, StatusCode

from tarry.client import sync
from tarry.client.aio import connect
from tarry.client.errors import InvalidTime, NoRoom, PartlyScheduled, Refused, TooLarge
from tarry.client.records import body_of, properties_of
from tarry.client.results import Scheduled
from tarry.proto.tarry_message_pb2 import Record
from tests.client.spans_kept import Spans, attributes, carried_by, identity, linked, propagating_by
from tests.client.stand_in import ClusterStandIn, refuse

THEIRS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def with_at_most(cluster: ClusterStandIn, properties_max: int) -> None:
    """Let the cluster refuse what has more properties, and say which message it is, as a node does."""

    async def check(node: Any, request: Any, call: Any) -> None:
        for position, record in enumerate(request.records):
            if len(properties_of(record)) > properties_max:
                facts = {"position": str(position)}
                await refuse(call, grpc.StatusCode.INVALID_ARGUMENT, "TOO_MANY_PROPERTIES", facts)

    cluster.before_schedule = check


async def refuse_all(node: Any, request: Any, call: Any) -> None:
    await refuse(call, grpc.StatusCode.RESOURCE_EXHAUSTED, "SECOND_FULL")


async def test_a_schedule_is_a_span_whose_context_the_message_carries(cluster: ClusterStandIn) -> None:
    spans = Spans()
    async with connect(cluster.addresses, tracing=spans.tracing) as client:
        producer = client.producer()
        with spans.tracer.start_as_current_span("request") as request:
            scheduled = await producer.schedule("orders", b"b", delay_ms=5, tags=["t"], keys=["k"])
            span = spans.one("send orders")  # it has ended when the answer is there
    assert span.kind is SpanKind.PRODUCER
    assert span.parent is not None
    assert identity(span.parent) == identity(request.get_span_context())
    assert dict(span.attributes or {}) == {
        "messaging.system": "tarry",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.client.id": producer.id,
        "messaging.message.id": scheduled.id,
        "messaging.tarry.due_ms": scheduled.due_ms,
    }
    record = Record.FromString(cluster.scheduled[0])
    assert (record.body, list(record.tags), list(record.keys)) == (b"b", ["t"], ["k"])
    assert carried_by(dict(record.properties)) == identity(span.context)


async def test_messages_that_share_a_request_have_a_span_each(cluster: ClusterStandIn) -> None:
    spans = Spans()
    async with connect(cluster.addresses, tracing=spans.tracing) as client:
        producer = client.producer()
        await asyncio.gather(*(producer.schedule("orders", b"%d" % n, delay_ms=n) for n in range(9)))
    assert len(cluster.requests) == 1
    carried = [carried_by(properties_of(record)) for record in cluster.scheduled]
    assert carried == [identity(span.context) for span in spans.all("send orders")]
    assert len(set(carried)) == 9


class Counting(TextMapPropagator):
    """The global propagator, and how often it was asked."""

    def __init__(self, inner: TextMapPropagator) -> None:
        self.inner = inner
        self.injected = 0

    def extract(self, *given: Any, **named: Any) -> context.Context:
        return self.inner.extract(*given, **named)

    def inject(self, *given: Any, **named: Any) -> None:
        self.injected += 1
        self.inner.inject(*given, **named)

    @property
    def fields(self) -> set[str]:
        return self.inner.fields


async def test_a_batch_is_one_span_and_asks_the_propagator_once(cluster: ClusterStandIn) -> None:
    spans = Spans()
    counting = Counting(propagate.get_global_textmap())
    bodies = [b"%d" % n for n in range(50)]
    async with connect(cluster.addresses, tracing=spans.tracing, batch_messages_max=20) as client:
        with propagating_by(counting):
            await client.producer().schedule_batch(
                "orders", bodies, delay_ms=5, properties=[{"n": str(n)} for n in range(50)]
            )
    assert counting.injected == 1
    span = spans.one("send orders")
    assert span.kind is SpanKind.PRODUCER
    assert attributes(span, "batch.message_count", "message.id", "destination.name") == [50, None, "orders"]
    assert len(cluster.requests) == 3
    found = sorted((properties_of(record) for record in cluster.scheduled), key=lambda own: int(own["n"]))
    assert [own.pop("n") for own in found] == list(map(str, range(50)))
    assert {carried_by(own) for own in found} == {identity(span.context)}
    assert sorted(map(body_of, cluster.scheduled)) == sorted(bodies)


@pytest.mark.parametrize("asked", [{}, {"tracing": False}])
async def test_a_client_that_does_not_trace_adds_nothing(
    cluster: ClusterStandIn, asked: Mapping[str, Any]
) -> None:
    spans = Spans()
    async with connect(cluster.addresses, **asked) as client:
        producer = client.producer()
        with spans.tracer.start_as_current_span("request"):
            await producer.schedule("orders", b"a", delay_ms=5)
            await producer.schedule_batch("orders", [b"b"], delay_ms=5)
    assert [span.name for span in spans] == ["request"]
    assert cluster.scheduled == [b"\x22\x01a", b"\x22\x01b"]


async def test_the_span_of_several_topics_is_named_after_none_of_them(cluster: ClusterStandIn) -> None:
    spans = Spans()
    async with connect(cluster.addresses, tracing=spans.tracing) as client:
        producer = client.producer()
        await producer.schedule_batch(["orders", "mails"], [b"a", b"b"], delay_ms=5)
        await producer.schedule_batch(["orders", "orders"], [b"a", b"b"], delay_ms=5)
        cluster.before_schedule = refuse_all
        with pytest.raises(Refused):
            await producer.schedule_batch([], [], delay_ms=5)
    assert [span.name for span in spans] == ["send", "send orders", "send"]
    assert attributes(spans.all("send")[0], "batch.message_count", "destination.name") == [2, None]
    assert {carried_by(properties_of(record)) for record in cluster.requests[0].records} == {
        identity(spans.all("send")[0].context)
    }


async def test_without_an_sdk_nothing_is_added_either(cluster: ClusterStandIn) -> None:
    async with connect(cluster.addresses, tracing=True) as client:
        producer = client.producer()
        await producer.schedule("orders", b"a", delay_ms=5)
        await producer.schedule_batch("orders", [b"b"], delay_ms=5)
    assert cluster.scheduled == [b"\x22\x01a", b"\x22\x01b"]


async def test_baggage_goes_along_as_the_global_propagator_says(cluster: ClusterStandIn) -> None:
    spans = Spans()
    token = context.attach(baggage.set_baggage("tenant", "blue"))
    try:
        async with connect(cluster.addresses, tracing=spans.tracing) as client:
            await client.producer().schedule("orders", b"a", delay_ms=5)
    finally:
        context.detach(token)
    assert properties_of(cluster.scheduled[0])["baggage"] == "tenant=blue"


async def test_properties_of_the_application_win(cluster: ClusterStandIn) -> None:
    spans = Spans()
    own: list[dict[str, str]] = [
        {"traceparent": THEIRS, "a": "1"},
        {"traceparent": "nonsense"},
        {"tracestate": "x=1"},
        {},
    ]
    async with connect(cluster.addresses, tracing=spans.tracing) as client:
        producer = client.producer()
        for properties in own:
            await producer.schedule("orders", b"a", delay_ms=5, properties=properties)
        await producer.schedule_batch("orders", [b"b"] * 4, delay_ms=5, properties=own)
    *singles, batch = spans.all("send orders")
    for first, sent in ((0, singles), (4, [batch] * 4)):
        found = list(map(properties_of, cluster.scheduled[first : first + 4]))
        assert found[:2] == own[:2]  # a whole context of theirs stays alone; the name of ours is taken
        assert found[2].pop("tracestate") == "x=1"
        assert [carried_by(each) for each in found[2:]] == [identity(span.context) for span in sent[2:]]
    assert list(map(linked, [*singles, batch])) == [[carried_by(own[0])], [], [], [], [carried_by(own[0])]]


async def test_a_body_that_names_a_field_is_no_property(cluster: ClusterStandIn) -> None:
    spans = Spans()
    async with connect(cluster.addresses, tracing=spans.tracing) as client:
        await client.producer().schedule("orders", b"traceparent", delay_ms=5)
    assert body_of(cluster.scheduled[0]) == b"traceparent"
    assert carried_by(properties_of(cluster.scheduled[0])) == identity(spans.one("send orders").context)


async def test_a_message_without_room_goes_without_context_and_the_others_keep_theirs(
    cluster: ClusterStandIn,
) -> None:
    spans = Spans()
    with_at_most(cluster, 2)
    crowded = {"a": "1", "b": "2"}
    async with connect(cluster.addresses, tracing=spans.tracing) as client:
        producer = client.producer()
        answers = await asyncio.gather(
            *(
                producer.schedule(
                    "orders", b"%d" % n, delay_ms=5, properties=crowded if n == 3 else {"n": ""}
                )
                for n in range(8)
            )
        )
    found = {body_of(record): properties_of(record) for record in cluster.scheduled}
    assert found.pop(b"3") == crowded
    assert sorted(found) == [b"%d" % n for n in range(8) if n != 3]
    assert all(map(carried_by, found.values()))
    sent = spans.all("send orders")
    assert {attributes(span, "message.id")[0] for span in sent} == {answer.id for answer in answers}
    assert {span.status.status_code for span in sent} == {StatusCode.UNSET}


async def test_closing_waits_for_a_message_that_goes_once_more_without_context(
    cluster: ClusterStandIn,
) -> None:
    spans = Spans()
    with_at_most(cluster, 0)
    done: list[Scheduled | BaseException] = []
    async with connect(cluster.addresses, tracing=spans.tracing) as client:
        producer = client.producer()
        producer.schedule_soon("orders", b"a", delay_ms=5, on_done=done.append)
        producer.schedule_one_way("orders", b"b", delay_ms=5)
        await producer.close()
    assert [type(outcome) for outcome in done] == [Scheduled]
    assert sorted(cluster.scheduled) == [b"\x22\x01a", b"\x22\x01b"]
    assert producer.one_way_errors == 0


async def test_a_batch_without_room_goes_without_context(cluster: ClusterStandIn) -> None:
    spans = Spans()
    with_at_most(cluster, 2)
    crowded = {"a": "1", "b": "2"}
    async with connect(cluster.addresses, tracing=spans.tracing, batch_messages_max=2) as client:
        answer = await client.producer().schedule_batch(
            "orders", [b"0", b"1", b"2", b"3"], delay_ms=5, properties=[{}, {}, {}, crowded]
        )
    assert len(answer) == 4
    found = {body_of(record): properties_of(record) for record in cluster.scheduled}
    assert (found[b"2"], found[b"3"]) == ({}, crowded)  # they share a request
    assert {carried_by(found[body]) for body in (b"0", b"1")} == {identity(spans.one("send orders").context)}


async def test_what_is_too_large_by_itself_is_refused_as_ever(cluster: ClusterStandIn) -> None:
    spans = Spans()
    with_at_most(cluster, 0)
    async with connect(cluster.addresses, tracing=spans.tracing) as client:
        producer = client.producer()
        with pytest.raises(TooLarge):
            await producer.schedule("orders", b"a", delay_ms=5, properties={"a": "1"})
        with pytest.raises(TooLarge):
            await producer.schedule_batch("orders", [b"a"], delay_ms=5, properties=[{"a": "1"}])
    assert len(cluster.requests) == 4  # each once with, once without
    errors = [(span.attributes or {})["error.type"] for span in spans.all("send orders")]
    assert errors == ["TOO_MANY_PROPERTIES"] * 2


async def test_a_refusal_is_the_error_of_the_span(cluster: ClusterStandIn) -> None:
    spans = Spans()
    cluster.before_schedule = refuse_all
    async with connect(cluster.addresses, tracing=spans.tracing, batch_messages_max=1) as client:
        producer = client.producer()
        with pytest.raises(NoRoom):
            await producer.schedule("orders", b"a", delay_ms=5)
        with pytest.raises((NoRoom, PartlyScheduled)):
            await producer.schedule_batch("orders", [b"a", b"b"], delay_ms=5)
    for span in spans.all("send orders"):
        assert (span.attributes or {})["error.type"] == "SECOND_FULL"
        assert span.status.status_code is StatusCode.ERROR
        assert [event.name for event in span.events] == ["exception"]


async def test_what_was_never_sent_is_no_span(cluster: ClusterStandIn) -> None:
    spans = Spans()
    async with connect(cluster.addresses, tracing=spans.tracing) as client:
        producer = client.producer()
        with pytest.raises(InvalidTime):
            await producer.schedule("orders", b"a", delay_ms=5, due_ms=5)
        with pytest.raises(InvalidTime):
            await producer.schedule_batch("orders", [b"a"], delay_ms=0.5)
    assert list(spans) == []


async def test_a_span_ends_though_nobody_waits_for_the_answer_any_more(cluster: ClusterStandIn) -> None:
    spans = Spans()
    async with connect(cluster.addresses, tracing=spans.tracing) as client:
        client.producer().schedule("orders", b"a", delay_ms=5).cancel()
    assert attributes(spans.one("send orders"), "message.id") != [None]


def schedule(producer: sync.Producer, body: bytes) -> None:
    producer.schedule("orders", body, delay_ms=5)


def schedule_batch(producer: sync.Producer, body: bytes) -> None:
    producer.schedule_batch("orders", [body], delay_ms=5)


def schedule_one_way(producer: sync.Producer, body: bytes) -> None:
    producer.schedule_one_way("orders", body, delay_ms=5)


@pytest.mark.parametrize("way", [schedule, schedule_batch, schedule_one_way])
async def test_spans_of_the_blocking_client_belong_to_the_trace_of_the_calling_thread(
    cluster: ClusterStandIn, way: Callable[[sync.Producer, bytes], None]
) -> None:
    spans = Spans()

    def work() -> None:
        with sync.connect(cluster.addresses, tracing=spans.tracing) as client, client.producer() as producer:
            for n in range(3):
                with spans.tracer.start_as_current_span(f"request {n}"):
                    way(producer, b"%d" % n)

    await asyncio.to_thread(work)
    requests = {identity(spans.one(f"request {n}").context): b"%d" % n for n in range(3)}
    parents = {identity(span.context): span.parent for span in spans.all("send orders")}
    found = {body_of(record): parents[carried_by(properties_of(record))] for record in cluster.scheduled}
    assert {requests[identity(parent)]: body for body, parent in found.items()} == {
        body: body for body in requests.values()
    }
