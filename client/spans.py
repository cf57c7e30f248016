"""Spans of messages, and their context in messages' properties; what of OpenTelemetry both sides use.

    send ORDERS (PRODUCER) ── context ──► properties of the record ── extracted ──► process ORDERS (CONSUMER)
                                                                                    linked to the first

Names and kinds are those of OpenTelemetry's semantic conventions for messaging; names of our own are below
`messaging.tarry`. Imported only where tracing is asked for: opentelemetry-api is of an extra.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, StatusCode, Tracer
from opentelemetry.util.types import AttributeValue

from tarry.client.errors import TarryError
from tarry.client.tracing import Tracing
from tarry.proto.version import VERSION

Attributes = dict[str, AttributeValue]

MESSAGE_ID: Final = "messaging.message.id"
MESSAGE_COUNT: Final = "messaging.batch.message_count"
GROUP: Final = "messaging.consumer.group.name"
DUE_MS: Final = "messaging.tarry.due_ms"
ATTEMPT: Final = "messaging.tarry.attempt"
VERDICT: Final = "messaging.tarry.verdict"
"""Given while the span was open: ack, nack, or mixed."""
OUTCOME: Final = "messaging.tarry.outcome"
"""Of that verdict, where it came before the span's end: ok, stale or unknown; of several the first not ok."""

PARSING: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Raised by propagators, although they should not, over text that they cannot read; anybody may write it."""

log = logging.getLogger(__name__)


def tracer(tracing: Tracing) -> Tracer:
    """Return what makes the client's spans."""
    return trace.get_tracer("tarry.client", VERSION, tracing.tracer_provider)


def attributes(operation: str, client: str) -> Attributes:
    """Return the attributes that all spans of an operation have, and a producer's or consumer's name."""
    return {
        "messaging.system": "tarry",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.client.id": client,
    }


def of_topic(common: Attributes, topic: str) -> Attributes:
    """Return these attributes with the topic."""
    return {**common, "messaging.destination.name": topic}


def fields() -> frozenset[str]:
    """Return the names of properties that the global propagator may set."""
    return frozenset(propagate.get_global_textmap().fields)


def carried(span: Span) -> dict[str, str]:
    """Return the properties that carry the span's context and the current baggage; empty: there is none."""
    properties: dict[str, str] = {}
    try:
        propagate.get_global_textmap().inject(properties, trace.set_span_in_context(span))
    except PARSING:
        log.debug("the propagator fails: a message goes without trace context", exc_info=True)
        return {}
    return properties


def restored(properties: Mapping[str, str]) -> Context:
    """Return the current context with what the properties carry; its span is theirs, or none.

    What cannot be read counts as not there.
    """
    bare = trace.set_span_in_context(trace.INVALID_SPAN)
    try:
        return propagate.get_global_textmap().extract(properties, bare)
    except PARSING:
        log.debug("the trace context in a message's properties is malformed", exc_info=True)
        return bare


def origin(context: Context) -> SpanContext | None:
    """Return the context of a context's span, None where it has none."""
    found = trace.get_current_span(context).get_span_context()
    return found if found.is_valid else None


def links_of(messages: Iterable[Mapping[str, str]]) -> list[Link]:
    """Return a link to each span whose context these properties of messages carry; many may share one."""
    names = sorted(fields())
    # Told apart before they are extracted: the messages of a batch were mostly scheduled as one.
    distinct = dict.fromkeys(tuple(map(properties.get, names)) for properties in messages)
    told = ({name: value for name, value in zip(names, values, strict=True) if value} for values in distinct)
    found = filter(None, map(origin, map(restored, filter(None, told))))
    return list(map(Link, {(each.trace_id, each.span_id): each for each in found}.values()))


def failed(span: Span, error: BaseException) -> None:
    """Note in the span that its operation ended with an error."""
    kind = type(error)
    name = error.reason if isinstance(error, TarryError) else f"{kind.__module__}.{kind.__qualname__}"
    span.set_attribute("error.type", name.removeprefix("builtins."))
    span.set_status(StatusCode.ERROR, str(error))
    span.record_exception(error)
