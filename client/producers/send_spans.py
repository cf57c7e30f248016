"""Spans of a producer, each from the schedule of a message or of a batch until its answer.

A record carries its span's context as properties, in bytes that are appended to it: protobuf reads what is
concatenated as one message. So a batch costs one call of the propagator, no record is serialized again, and
where a record turns out to have no room for them they are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import filterfalse, repeat
from operator import add

from opentelemetry.trace import Span, SpanKind

from tarry.client.errors import TooLarge
from tarry.client.producers.accumulator import Accumulator, Send
from tarry.client.producers.batch import Batch, Time
from tarry.client.producers.completions import Waiter
from tarry.client.records import more_properties, properties_of
from tarry.client.results import Scheduled
from tarry.client.settings import Settings
from tarry.client.spans import (
    DUE_MS,
    MESSAGE_COUNT,
    MESSAGE_ID,
    Attributes,
    attributes,
    carried,
    failed,
    fields,
    links_of,
    of_topic,
    origin,
    restored,
    tracer,
)
from tarry.client.tracing import Tracing
from tarry.proto.trace_context import TRACE_PROPERTIES

Properties = Mapping[str, str]


class SendSpans:
    """Makes a producer's spans, and puts their context into records."""

    def __init__(self, tracing: Tracing, producer: str) -> None:
        self._tracer = tracer(tracing)
        self._attributes = attributes("send", producer)

    def message(self, topic: str, record: bytes, *, idempotent: bool) -> tuple[Span, bytes]:
        """Start the span of one message; return it with the bytes to append to the message's record."""
        names = fields()
        named = any(map(record.__contains__, map(str.encode, names)))  # hardly ever: only then it is parsed
        own = properties_of(record) if named else {}
        span = self._start(topic, {}, [own] if own else [])
        return span, _addition(_context(span, idempotent=idempotent), own)

    @contextmanager
    def batch(self, batch: Batch, properties: Sequence[Properties | None] | None) -> Iterator[Batch]:
        """Yield a batch with its span's context in the records; the span ends with the block."""
        own = list(filterfalse(fields().isdisjoint, filter(None, properties or ())))
        topic = batch.topics[0] if len(batch.topics) == 1 else ""
        span = self._start(topic, {MESSAGE_COUNT: len(batch)}, own)
        try:
            context = _context(span, idempotent=batch.idempotent)
            yield _carrying(batch, context, properties if own else None)
        except BaseException as error:
            failed(span, error)
            raise
        finally:
            span.end()

    def _start(self, topic: str, more: Attributes, own: Sequence[Properties]) -> Span:
        """Start a span, of messages of several topics where none is named."""
        # Linked to the contexts that an application has put into its messages itself, and that stay in them.
        return self._tracer.start_span(
            f"send {topic}" if topic else "send",
            kind=SpanKind.PRODUCER,
            attributes=(of_topic(self._attributes, topic) if topic else dict(self._attributes)) | more,
            links=links_of(own) if own else None,
        )


class TracedAccumulator(Accumulator):
    """Accumulator whose messages each have a span, until they have their outcome."""

    def __init__(self, settings: Settings, send: Send, spans: SendSpans) -> None:
        super().__init__(settings, send)
        self._spans = spans

    def put(
        self,
        time: Time,
        topic: str,
        value: int,
        mask: int,
        jitter_ms: int,
        idempotent: bool,
        record: bytes,
        waiter: Waiter,
        *,
        synced: bool = False,
    ) -> None:
        """Add one message, as part of the current trace."""
        put = partial(super().put, time, topic, value, mask, jitter_ms, idempotent, synced=synced)
        span, addition = self._spans.message(topic, record, idempotent=idempotent)
        without = partial(put, record) if addition else None
        put(record + addition, _Sent(waiter, span, without))


class _Sent:
    """Receiver of a message's outcome that ends its span, then tells who waits for it."""

    __slots__ = ("_over", "_span", "_waiter", "_without")

    def __init__(self, waiter: Waiter, span: Span, without: Callable[[Waiter], None] | None) -> None:
        self._waiter = waiter
        self._span = span
        self._without = without
        """Sends the message without trace context."""
        self._over = False

    def done(self) -> bool:
        return self._over  # a wait that was cancelled ends no span

    def set_result(self, result: Scheduled, /) -> None:
        self._span.set_attributes({MESSAGE_ID: result.id, DUE_MS: result.due_ms})
        self._end()
        if not self._waiter.done():
            self._waiter.set_result(result)

    def set_exception(self, exception: BaseException, /) -> None:
        if isinstance(exception, TooLarge) and self._without is not None:
            without, self._without = self._without, None
            without(self)
            return
        failed(self._span, exception)
        self._end()
        if not self._waiter.done():
            self._waiter.set_exception(exception)

    def _end(self) -> None:
        self._over = True
        self._span.end()


def _context(span: Span, *, idempotent: bool) -> Properties:
    """Return the properties that carry the span's context.

    With an idempotency key only those that the cluster does not compare: a repetition would be refused.
    """
    context = carried(span)
    return {name: context[name] for name in context.keys() & TRACE_PROPERTIES} if idempotent else context


def _carrying(batch: Batch, context: Properties, properties: Sequence[Properties | None] | None) -> Batch:
    """Return the batch with the context in its records; properties: None where no name is in both."""
    if not context:
        return batch
    if properties is None:
        records = list(map(add, batch.records, repeat(more_properties(context))))
    else:
        records = list(map(add, batch.records, map(_addition, repeat(context), properties)))
    return replace(batch, records=records, bare=batch.records)


def _addition(context: Properties, own: Properties | None) -> bytes:
    """Return the bytes that add a context to a record; the message's own properties win."""
    if not own or context.keys().isdisjoint(own):
        return more_properties(context)
    if origin(restored(own)) is not None:
        return b""  # the application's own trace context: a part of ours would contradict it
    return more_properties({name: value for name, value in context.items() if name not in own})
