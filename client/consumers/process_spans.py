"""Spans of a consumer: of the processing of a message or a batch, and of a puller's receipt.

    with message.span():     the span is current; linked to the one that scheduled the message
        message.ack()        its verdict, and the outcome once it is known

What is processed outside of one costs nothing: nobody looks into its properties.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Final, TypeVar

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Link, Span, SpanKind, get_current_span, set_span_in_context

from tarry.client.consumers.message import Columns, Message, MessageBatch, Settler, View
from tarry.client.consumers.unsettled import AckOutcome, Verdict
from tarry.client.records import properties_of
from tarry.client.spans import (
    ATTEMPT,
    DUE_MS,
    GROUP,
    MESSAGE_COUNT,
    MESSAGE_ID,
    OUTCOME,
    VERDICT,
    Attributes,
    attributes,
    failed,
    links_of,
    of_topic,
    origin,
    restored,
    tracer,
)
from tarry.client.tracing import Tracing

T = TypeVar("T")

LEASE_MS: Final = "messaging.tarry.lease_ms"


class ProcessSpans:
    """Makes the spans of one consumer or puller; called with a message or batch, that of its processing."""

    def __init__(self, tracing: Tracing, group: str, client: str) -> None:
        self.open: dict[tuple[int, int], Processing] = {}
        """Messages of a puller that are being processed, by queue and offset: it settles them, not they."""
        self._tracer = tracer(tracing)
        self._same_trace = tracing.same_trace
        self._processing: Attributes = attributes("process", client) | {GROUP: group}
        self._receiving: Attributes = attributes("receive", client) | {GROUP: group}

    def __call__(self, subject: View | MessageBatch) -> Processing:
        """Return the processing of a message or batch, to be entered."""
        return Processing(self, subject)

    def start_message(self, message: View) -> tuple[Span, Context]:
        """Start the span of one message; return it with the context to process it in: baggage is restored."""
        ambient = get_current_span()
        context = restored(message.properties)
        sent = origin(context)
        links = [] if sent is None else [Link(sent)]
        if sent is None or not self._same_trace:
            context = set_span_in_context(ambient, context)
        elif ambient.get_span_context().is_valid:
            links.append(Link(ambient.get_span_context()))
        found: Attributes = {MESSAGE_ID: message.id, DUE_MS: message.due_ms, ATTEMPT: message.attempt}
        span = self._tracer.start_span(
            f"process {message.topic}",
            context,
            SpanKind.CONSUMER,
            of_topic(self._processing, message.topic) | found,
            links,
        )
        return span, set_span_in_context(span, context)

    def start_batch(self, batch: MessageBatch) -> tuple[Span, Context]:
        """Start the span of a batch, and return it with the context to process it in."""
        span = self._tracer.start_span(
            f"process {batch.topic}",
            kind=SpanKind.CONSUMER,
            attributes=of_topic(self._processing, batch.topic) | {MESSAGE_COUNT: len(batch)},
            links=links_of(map(properties_of, batch.records)),
        )
        return span, set_span_in_context(span)

    def received(self, topic: str, batches: Sequence[Columns], began_ns: int) -> None:
        """Make the span of a call that began then and has received messages."""
        self._tracer.start_span(
            f"receive {topic}",
            kind=SpanKind.CLIENT,
            attributes=of_topic(self._receiving, topic) | {MESSAGE_COUNT: sum(map(len, batches))},
            links=links_of(properties_of(record) for batch in batches for record in batch.records),
            start_time=began_ns,
        ).end()

    def settled(self, verdict: Verdict, offsets: Sequence[int], outcomes: Sequence[AckOutcome]) -> None:
        """Tell the spans in which messages of a puller are being processed what became of a verdict."""
        for offset, outcome in zip(offsets, outcomes, strict=True):
            processing = self.open.get((verdict.queue, offset))
            if processing is not None:
                processing.settled(verdict)
                processing.answered((outcome,) if verdict.extend_ms is None else ())


class Processing:
    """Span of a message or batch for the time of a ``with``; verdicts and an error that ends it are noted."""

    def __init__(self, spans: ProcessSpans, subject: View | MessageBatch) -> None:
        self._spans = spans
        self._subject = subject
        self._verdict = ""
        self._outcome = ""

    def __enter__(self) -> Span:
        spans, subject = self._spans, self._subject
        if isinstance(subject, MessageBatch):
            self._span, context = spans.start_batch(subject)
        else:
            self._span, context = spans.start_message(subject)
        self._token = attach(context)
        if isinstance(subject, Message | MessageBatch):
            self._settler = subject._settler
            subject._settler = Recorder(self._settler, self)
        else:
            spans.open[subject.queue, subject.offset] = self
        return self._span

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subject = self._subject
        if isinstance(subject, Message | MessageBatch):
            subject._settler = self._settler
        else:
            self._spans.open.pop((subject.queue, subject.offset), None)
        detach(self._token)
        if error is not None and not isinstance(error, GeneratorExit):
            failed(self._span, error)
        self._span.end()

    def settled(self, verdict: Verdict) -> None:
        """Note a verdict. May be called from any thread."""
        if not self._span.is_recording():
            return  # not sampled, or over
        if verdict.extend_ms is not None:
            self._span.add_event("extend", {LEASE_MS: verdict.extend_ms})
            return
        given = "nack" if verdict.nack else "ack"
        if given != self._verdict:  # the messages of a batch mostly get the same
            self._verdict = "mixed" if self._verdict else given
            self._span.set_attribute(VERDICT, self._verdict)

    def answered(self, outcomes: Iterable[AckOutcome]) -> None:
        """Note the outcomes of a verdict. May be called from any thread."""
        outcome = next((each for each in outcomes if each is not AckOutcome.OK), AckOutcome.OK)
        if self._outcome in ("", AckOutcome.OK) and outcome != self._outcome and self._span.is_recording():
            self._outcome = outcome
            self._span.set_attribute(OUTCOME, outcome.value)


class Recorder:
    """Settler of what is processed in a span: passes each verdict on, and notes it."""

    def __init__(self, settler: Settler, processing: Processing) -> None:
        self._settler = settler
        self.processing = processing

    def settle_soon(self, verdict: Verdict, offset: int) -> None:
        """Give a verdict without waiting."""
        self._settler.settle_soon(verdict, offset)
        self.processing.settled(verdict)

    def settle(self, verdict: Verdict, offset: int) -> asyncio.Future[AckOutcome]:
        """Give a verdict and return its outcome to come."""
        answer = self._settler.settle(verdict, offset)
        self._note(verdict, answer, lambda outcome: (outcome,))
        return answer

    def settle_many_soon(self, verdict: Verdict, offsets: Sequence[int]) -> None:
        """Give one verdict on many without waiting."""
        self._settler.settle_many_soon(verdict, offsets)
        self.processing.settled(verdict)

    def settle_many(self, verdict: Verdict, offsets: Sequence[int]) -> asyncio.Future[list[AckOutcome]]:
        """Give one verdict on many and return the outcomes to come."""
        answer = self._settler.settle_many(verdict, offsets)
        self._note(verdict, answer, lambda outcomes: outcomes)
        return answer

    def _note(
        self, verdict: Verdict, answer: asyncio.Future[T], outcomes: Callable[[T], Iterable[AckOutcome]]
    ) -> None:
        self.processing.settled(verdict)
        if verdict.extend_ms is not None:
            return

        def told(answer: asyncio.Future[T]) -> None:
            if not answer.cancelled():
                self.processing.answered(outcomes(answer.result()))

        if answer.done():
            told(answer)  # a callback would come after who awaits it, whose span may be over by then
        else:
            answer.add_done_callback(told)
