"""A connection of a caller: there are so many, and each has to send and to take what it should in time.

uvicorn bounds none of it: it waits for ever for the head of a request, for the rest of a body that was
refused, and for a caller that does not read its answer.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from tarry.gateway.http.config import Limits


class Connection(H11Protocol):
    """A connection within ``bounds``."""

    bounds = Limits()

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._head: asyncio.TimerHandle | None = None
        self._taken: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, or end at once where there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.bounds.connections_max:
            transport.abort()
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        for timer in (self._head, self._taken):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the answer to be taken where it was the last."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._await_taken()
        else:
            self._await_head()

    def pause_writing(self) -> None:
        """Wait for the caller to take what is written."""
        super().pause_writing()
        self._await_taken()

    def resume_writing(self) -> None:
        """Go on: it has taken most of it."""
        super().resume_writing()
        if self._taken is not None and not self.transport.is_closing():
            self._taken.cancel()
            self._taken = None

    def _await_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
        self._head = self.loop.call_later(self.bounds.head_ms / 1_000, self._head_over)

    def _head_over(self) -> None:
        if self.cycle is None or self.cycle.response_complete:  # no request is under way
            self.transport.close()
            self._await_taken()

    def _await_taken(self) -> None:
        if self._taken is None:
            self._taken = self.loop.call_later(self.bounds.answer_ms / 1_000, self.transport.abort)


def connection_of(limits: Limits) -> type[Connection]:
    """Return the class of connections within these limits."""

    class Bounded(Connection):
        bounds = limits

    return Bounded
