"""Spans kept in memory by the SDK of OpenTelemetry, for tests of tracing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from opentelemetry import propagate
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext

from tarry.client.tracing import Tracing

Identity = tuple[int, int]
"""Trace and span."""


class Spans:
    """A provider of its own: the global one can be set once in a process."""

    def __init__(self, *, same_trace: bool = False) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = Tracing(tracer_provider=provider, same_trace=same_trace)
        self.tracer = provider.get_tracer("application")

    def __iter__(self) -> Iterator[ReadableSpan]:
        return iter(self._exporter.get_finished_spans())

    def all(self, name: str) -> list[ReadableSpan]:
        """Return the spans of a name that have ended, in that order."""
        return [span for span in self if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        """Return the only span of a name that has ended."""
        (span,) = self.all(name)
        return span


@contextmanager
def propagating_by(propagator: TextMapPropagator) -> Iterator[None]:
    """Have another global propagator."""
    before = propagate.get_global_textmap()
    propagate.set_global_textmap(propagator)
    try:
        yield
    finally:
        propagate.set_global_textmap(before)


def identity(context: SpanContext | None) -> Identity:
    """Return what tells spans apart."""
    assert context is not None
    return context.trace_id, context.span_id


def linked(span: ReadableSpan) -> list[Identity]:
    """Return which spans a span is linked to."""
    return [identity(link.context) for link in span.links]


def carried_by(properties: dict[str, str]) -> Identity:
    """Return which span is named by a traceparent."""
    _, trace_id, span_id, _ = properties["traceparent"].split("-")
    return int(trace_id, 16), int(span_id, 16)


def attributes(span: ReadableSpan, *names: str) -> Sequence[object]:
    """Return attributes by the ends of their names."""
    assert span.attributes is not None
    return [span.attributes.get(f"messaging.{name}") for name in names]
