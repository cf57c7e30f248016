"""Names of the properties in which messages carry W3C trace context."""

from __future__ import annotations

from typing import Final

TRACE_PROPERTIES: Final = frozenset({"traceparent", "tracestate", "baggage"})
"""No part of what is compared where an idempotency key comes again: each attempt has a context of its own."""
