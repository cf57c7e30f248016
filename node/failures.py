"""Errors that nobody awaits: of timers, of callbacks, of tasks that were let go. The node's own end it.

Those of a call end the call alone, and are written to the log: its caller may be gone.

asyncio only logs them, and what the failed code was about to do is left half done: messages taken from a
feed and not delivered, say.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from typing import Any, Final

import structlog

log = structlog.get_logger()

OWN: Final = "tarry."
LOG_PERIOD_S: Final = 5.0


def is_own(error: BaseException | None) -> bool:
    """Return whether an error came up in the node's code: such a one must end the process.

    Others are of a connection, not of the node, and are logged. Known are: cancellation; gRPC's own types (a
    call broke while it was answered); what comes up within asyncio or gRPC alone, such as accept(2) without a
    file descriptor, which asyncio tries again, a TLS connection closed at a bad moment, and BlockingIOError
    in gRPC's poller.
    """
    if not isinstance(error, Exception) or type(error).__module__.startswith("grpc."):
        return False
    names = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(name.startswith(OWN) for name in names)


class CallErrors:
    """Writes errors of calls to the log, one now and then: anybody may call as often as they like."""

    def __init__(self) -> None:
        self._so_far = 0
        self._told_s = -LOG_PERIOD_S

    def log(self, error: Exception) -> None:
        """Write it, with where it came up, if it is the node's own."""
        if not is_own(error):
            return
        self._so_far += 1
        if time.monotonic() - self._told_s >= LOG_PERIOD_S:
            self._told_s = time.monotonic()
            log.error("an error in a call", so_far=self._so_far, exc_info=error)


class Failures:
    """Errors that nobody awaits, as the event loop reports them."""

    def __init__(self) -> None:
        """Become the handler of the running event loop."""
        loop = asyncio.get_running_loop()
        self._first: asyncio.Future[None] = loop.create_future()
        loop.set_exception_handler(self._handle)

    async def watch(self) -> None:
        """Raise the first error of the node's own."""
        await asyncio.shield(self._first)

    def _handle(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        own = is_own(error)
        log.error("an error that nobody awaits", what=context["message"], ends_node=own, exc_info=error)
        if isinstance(error, Exception) and own and not self._first.done():
            self._first.set_exception(error)
