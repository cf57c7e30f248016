"""Idempotency keys: what a producer sends with them, and what it makes of the answers."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tarry.client import sync
from tarry.client.aio import connect
from tarry.client.errors import (
    IdempotencyConflict,
    InvalidBatch,
    OutcomeUnknown,
    PartlyScheduled,
)
from tarry.client.records import body_of, properties_of
from tarry.client.results import Scheduled
from tarry.proto.tarry_message_pb2 import Record
from tests.client.spans_kept import Spans, propagating_by
from tests.client.stand_in import ClusterStandIn, refuse


def keys_of(request: Any) -> list[str]:
    return [Record.FromString(record).idempotency_key for record in request.records]


async def test_a_lost_answer_is_found_by_the_keys(
    cluster: ClusterStandIn,
) -> None:
    lost = 2

    async def lose(node: Any, request: Any, context: Any) -> None:
        nonlocal lost
        if lost:
            lost -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")

    cluster.on_schedule = lose
    async with connect(cluster.addresses) as client:
        producer = client.producer()
        scheduled = await producer.schedule("orders", b"once", delay_ms=5, idempotency_key="k")
    assert scheduled.repeated
    assert list(map(body_of, cluster.scheduled)) == [b"once"]
    assert [(r.producer, r.sequence, keys_of(r)) for r in cluster.requests] == [(producer.id, 1, ["k"])] * 3


async def test_what_a_call_without_an_outcome_scheduled_is_found_by_the_next(cluster: ClusterStandIn) -> None:
    async def lose(node: Any, request: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")

    cluster.on_schedule = lose
    async with connect(cluster.addresses, deadline_ms=500) as client:
        with pytest.raises(OutcomeUnknown):
            await client.producer().schedule("orders", b"once", due_ms=5_000, idempotency_key="k")
    cluster.on_schedule = None
    async with connect(cluster.addresses) as other:
        again = await other.producer().schedule("orders", b"once", due_ms=6_000, idempotency_key="k")
    assert (again.repeated, again.due_ms, len(cluster.scheduled)) == (True, 5_000, 1)


async def test_messages_with_and_without_keys_share_no_request(cluster: ClusterStandIn) -> None:
    async with connect(cluster.addresses) as client:
        producer = client.producer()
        answers = await asyncio.gather(
            *(
                producer.schedule("orders", b"%d" % n, delay_ms=n, idempotency_key=f"k{n}" if n % 2 else "")
                for n in range(10)
            )
        )
    assert sorted(map(keys_of, cluster.requests)) == [[""] * 5, ["k1", "k3", "k5", "k7", "k9"]]
    assert len({answer.id for answer in answers}) == 10


async def test_full_requests_with_and_without_keys_leave_alone(cluster: ClusterStandIn) -> None:
    async with connect(cluster.addresses, batch_messages_max=2) as client:
        producer = client.producer()
        await asyncio.gather(
            *(
                producer.schedule("orders", b"%d" % n, delay_ms=n, idempotency_key=f"k{n}" if n < 3 else "")
                for n in range(6)
            )
        )
    assert sorted(map(keys_of, cluster.requests)) == [[""], ["", ""], ["k0", "k1"], ["k2"]]


async def test_each_message_is_told_whether_it_repeats_another(cluster: ClusterStandIn) -> None:
    done: list[Scheduled | BaseException] = []
    async with connect(cluster.addresses) as client:
        producer = client.producer()
        one, same, other, elsewhere = await asyncio.gather(
            producer.schedule("orders", b"x", delay_ms=5, idempotency_key="k"),
            producer.schedule("orders", b"x", delay_ms=5, idempotency_key="k"),
            producer.schedule("orders", b"x", delay_ms=5, idempotency_key="l"),
            producer.schedule("bills", b"x", delay_ms=5, idempotency_key="k"),
        )
        producer.schedule_soon("orders", b"x", delay_ms=5, idempotency_key="l", on_done=done.append)
        producer.schedule_one_way("orders", b"x", delay_ms=5, idempotency_key="l")
        await producer.flush()
        await asyncio.sleep(0)
    assert [each.repeated for each in (one, same, other, elsewhere)] == [False, True, False, False]
    assert same.id == one.id
    (soon,) = done
    assert isinstance(soon, Scheduled)
    assert (soon.repeated, soon.id, len(cluster.scheduled)) == (True, other.id, 3)


def conflicting(cluster: ClusterStandIn, key: str) -> None:
    """Let another message have a key."""

    async def check(node: Any, request: Any, context: Any) -> None:
        if key in (keys := keys_of(request)):
            facts = {"position": str(keys.index(key)), "id": "the-other"}
            await refuse(context, grpc.StatusCode.ALREADY_EXISTS, "IDEMPOTENCY_CONFLICT", facts)

    cluster.before_schedule = check


async def test_a_conflict_names_the_message_and_fails_alone(cluster: ClusterStandIn) -> None:
    conflicting(cluster, "k3")
    async with connect(cluster.addresses) as client:
        producer = client.producer()
        answers = await asyncio.gather(
            *(producer.schedule("orders", b"%d" % n, delay_ms=n, idempotency_key=f"k{n}") for n in range(6)),
            return_exceptions=True,
        )
    conflict = answers.pop(3)
    assert isinstance(conflict, IdempotencyConflict)
    assert conflict.id == "the-other"
    assert all(isinstance(answer, Scheduled) for answer in answers)
    assert sorted(map(body_of, cluster.scheduled)) == [b"0", b"1", b"2", b"4", b"5"]


async def test_a_batch_tells_which_positions_of_the_whole_repeat_others(cluster: ClusterStandIn) -> None:
    bodies, keys = [b"%d" % n for n in range(7)], [f"k{n}" for n in range(7)]
    async with connect(cluster.addresses, batch_messages_max=3) as client:
        producer = client.producer()
        once = await producer.schedule("orders", b"5", delay_ms=5, idempotency_key="k5")
        batch = await producer.schedule_batch("orders", bodies, delay_ms=5, idempotency_keys=keys)
        again = await producer.schedule_batch("orders", bodies, delay_ms=9, idempotency_keys=keys)
    assert (batch.repeats.tolist(), batch.repeated, batch.ids[5]) == ([5], False, once.id)
    assert again.repeats.tolist() == list(range(7))
    assert (again.ids, again.due_ms.tolist()) == (batch.ids, batch.due_ms.tolist())
    assert len(cluster.scheduled) == 7
    assert {request.producer for request in cluster.requests} == {producer.id}


async def test_a_batch_that_was_taken_in_part_is_scheduled_again_whole(cluster: ClusterStandIn) -> None:
    bodies, keys = [b"%d" % n for n in range(6)], [f"k{n}" for n in range(6)]
    conflicting(cluster, "k4")
    async with connect(cluster.addresses, batch_messages_max=2) as client:
        producer = client.producer()
        with pytest.raises(PartlyScheduled) as partly:
            await producer.schedule_batch("orders", bodies, delay_ms=5, idempotency_keys=keys)
        assert isinstance(partly.value.pieces[2], IdempotencyConflict)
        cluster.before_schedule = None
        batch = await producer.schedule_batch("orders", bodies, delay_ms=5, idempotency_keys=keys)
    assert batch.repeats.tolist() == [0, 1, 2, 3]
    assert sorted(map(body_of, cluster.scheduled)) == bodies


@pytest.mark.parametrize("keys", [["k", ""], ["", ""], ["k"], []])
async def test_a_batch_with_keys_has_one_for_each_message(cluster: ClusterStandIn, keys: list[str]) -> None:
    async with connect(cluster.addresses) as client:
        with pytest.raises(InvalidBatch):
            await client.producer().schedule_batch("orders", [b"a", b"b"], delay_ms=5, idempotency_keys=keys)
    assert not cluster.calls


async def test_requests_with_keys_are_bounded_as_others_are(cluster: ClusterStandIn) -> None:
    gate, under_way, most = asyncio.Event(), 0, 0

    async def count(node: Any, request: Any, context: Any) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await gate.wait()
        under_way -= 1

    cluster.before_schedule = count
    async with connect(cluster.addresses, batch_messages_max=1, in_flight_max=4) as client:
        keys = [f"k{n}" for n in range(20)]
        batch = asyncio.ensure_future(
            client.producer().schedule_batch("orders", [b""] * 20, delay_ms=5, idempotency_keys=keys)
        )
        await cluster.until(lambda: len(cluster.requests) == 4)
        gate.set()
        assert len(await batch) == 20
    assert most == 4


class WithAnother(TextMapPropagator):
    """W3C trace context, and a property of another kind."""

    _w3c = TraceContextTextMapPropagator()

    def extract(self, carrier: Any, context: Context | None = None, *given: Any, **named: Any) -> Context:
        return self._w3c.extract(carrier, context, *given, **named)

    def inject(self, carrier: Any, *given: Any, **named: Any) -> None:
        self._w3c.inject(carrier, *given, **named)
        carrier["b3"] = "1"

    @property
    def fields(self) -> set[str]:
        return {*self._w3c.fields, "b3"}


async def test_a_key_goes_with_the_trace_context_that_is_not_compared_and_no_other(
    cluster: ClusterStandIn,
) -> None:
    spans = Spans()
    async with connect(cluster.addresses, tracing=spans.tracing) as client:
        producer = client.producer()
        with propagating_by(WithAnother()):
            await producer.schedule("orders", b"a", delay_ms=5, idempotency_key="k")
            await producer.schedule_batch("orders", [b"b"], delay_ms=5, idempotency_keys=["l"])
            await producer.schedule("orders", b"c", delay_ms=5)
    carried = [properties_of(record).keys() for record in cluster.scheduled]
    assert carried == [{"traceparent"}, {"traceparent"}, {"traceparent", "b3"}]
    assert list(map(keys_of, cluster.requests)) == [["k"], ["l"], [""]]


async def test_the_blocking_client_has_them_too(cluster: ClusterStandIn) -> None:
    def schedule() -> list[bool]:
        with sync.connect(cluster.addresses) as client, client.producer() as producer:
            one = producer.schedule("orders", b"x", delay_ms=5, idempotency_key="k")
            more = producer.schedule_batch("orders", [b"x"], delay_ms=5, idempotency_keys=["k"])
            return [one.repeated, more.repeats.tolist() == [0]]

    assert await asyncio.to_thread(schedule) == [False, True]
    assert len(cluster.scheduled) == 1


async def test_a_key_that_is_none_is_refused_and_the_message_not_scheduled_without_it(
    cluster: ClusterStandIn,
) -> None:
    async with connect(cluster.addresses) as client:
        for key in (None, b"k", 7):
            none: Any = {"idempotency_key": key}
            with pytest.raises(TypeError, match="idempotency_key must be a str"):
                await client.producer().schedule("orders", b"x", delay_ms=5, **none)
    assert not cluster.requests
