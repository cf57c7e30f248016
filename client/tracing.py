"""Tracing with OpenTelemetry, as an application asks for it: options only, nothing here imports it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tarry.proto.extras import lacking

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracing:
    """Options of a client that traces; ``tracing=True`` stands for those that are the defaults here."""

    tracer_provider: TracerProvider | None = None
    """Makes the spans; None: the global one does."""
    same_trace: bool = False
    """The span in which a message is processed is a child of the one that scheduled it, in the same trace,
    however late. Otherwise it belongs to the trace of the consumer. It is linked to that span in any case."""


def tracing_of(asked: bool | Tracing) -> Tracing | None:
    """Return the options that a setting asks for, None where it asks for no tracing.

    Raises TypeError for anything else, and ModuleNotFoundError, which says what to install.
    """
    if not isinstance(asked, bool | Tracing):
        raise TypeError(f"tracing must be True, False or Tracing, not {asked!r}")
    if not asked:
        return None
    # its name alone is there with any of OpenTelemetry's packages
    if text := lacking("opentelemetry") or lacking("opentelemetry", "opentelemetry.trace"):
        raise ModuleNotFoundError(f"tracing: {text}", name="opentelemetry")
    return asked if isinstance(asked, Tracing) else Tracing()
