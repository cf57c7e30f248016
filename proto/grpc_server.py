"""A server of grpc.aio that takes many calls in each turn of the event loop.

grpc.aio asks the core for one call, and for the next once that has been taken: one call in one to five turns,
by its version. While turns are long, calls wait for their handlers for seconds. Here ``CALLS_ASKED`` are
asked for at a time, and grpc.aio's own loop gets those that have come without waiting for a turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import grpc
from grpc._cython import cygrpc

CALLS_ASKED: Final = 16
"""Of the core at a time: so many calls, at most, begin in a turn. Each costs some 0.2 ms."""

_CORE_SERVER: Final[Any] = cygrpc.AioServer


def server(**arguments: Any) -> grpc.aio.Server:
    """Return ``grpc.aio.server(**arguments)``, which takes many calls in a turn where its version lets it."""
    if not hasattr(_CORE_SERVER, "_request_call"):
        return grpc.aio.server(**arguments)
    cygrpc.AioServer = _ManyCalls
    try:
        return grpc.aio.server(**arguments)
    finally:
        cygrpc.AioServer = _CORE_SERVER


class _Taken(asyncio.Future[Any]):
    """A call that had come before it was asked for: ``asyncio.wait`` does not wait a turn for it."""

    _told = False

    def add_done_callback(self, fn: Callable[..., object], *, context: Any = None) -> None:
        if self.done() and not self._told:
            self._told = True
            fn(self)
        else:
            super().add_done_callback(fn, context=context)


class _ManyCalls(_CORE_SERVER):  # type: ignore[misc]
    """Overrides the two methods by which grpc.aio's loop asks for the next call.

    Up to 1.83 the loop awaits ``_request_call``; since then it waits for futures, also of methods that were
    registered.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._come: deque[Any] = deque()
        self._next: asyncio.Future[Any] | None = None
        """Of grpc.aio's loop, which waits."""
        self._asking: list[asyncio.Task[None]] = []

    async def _request_call(self) -> Any:
        return await self._next_call()

    def _make_request_call_future(self, method: bytes | None) -> Any:
        return self._next_call() if method is None else super()._make_request_call_future(method)

    def _next_call(self) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        if not self._asking:
            self._asking = [loop.create_task(self._ask()) for _ in range(CALLS_ASKED)]
        taken = _Taken(loop=loop)
        if self._come:
            taken.set_result(self._come.popleft())
        else:
            self._next = taken
        return taken

    async def _ask(self) -> None:
        while True:
            try:
                call = await super()._request_call()
            except Exception as error:  # noqa: BLE001 - the server ends: its loop ends with the same error
                self._come.clear()  # which ends these calls; grpc.aio's loop takes no more
                if self._next is not None and not self._next.done():
                    self._next.set_exception(error)
                return
            if self._next is not None and not self._next.done():
                self._next.set_result(call)
            else:
                self._come.append(call)
