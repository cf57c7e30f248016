"""A server of grpc.aio that takes many calls in each turn of the event loop.

grpc.aio asks the core for one call, and for the next once that one has been taken: less than one call a turn.
While turns are long, calls wait for their handlers for seconds. Here many are asked for at a time, and
grpc.aio's own loop gets those that have come without waiting for a turn.

From 1.84 on, one call whose path is not UTF-8 ends a server of grpc.aio for good, whoever sends it, and its
loop may cancel the method that is overridden here while that waits. So `pyproject.toml` keeps nodes and
gateways below that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from threading import Lock
from typing import Any, Final

import grpc
from grpc._cython import cygrpc

TURN_CALLS_MAX: Final = 16
"""Calls that begin in one turn, and that are asked for at a time. Each takes some 0.2 ms."""

_CORE_SERVER: Final[Any] = cygrpc.AioServer
_MAKING: Final = Lock()
"""Held while grpc.aio has another class for its servers: it would be the wrong one for another thread's."""


def server(**arguments: Any) -> grpc.aio.Server:
    """Return ``grpc.aio.server(**arguments)``, which takes many calls in a turn."""
    with _MAKING:
        cygrpc.AioServer = _ManyCalls
        try:
            return grpc.aio.server(**arguments)
        finally:
            cygrpc.AioServer = _CORE_SERVER


class _ManyCalls(_CORE_SERVER):  # type: ignore[misc]
    """Overrides the method by which grpc.aio's loop asks for the next call."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._come: deque[Any] = deque()
        self._given = 0
        """To grpc.aio's loop since it last waited for a turn."""
        self._asking: list[asyncio.Task[None]] = []
        self._woken: asyncio.Future[None] | None = None
        self._failure: Exception | None = None

    async def _request_call(self) -> Any:
        if not self._asking:
            self._asking = [asyncio.create_task(self._ask()) for _ in range(TURN_CALLS_MAX)]
        if self._given == TURN_CALLS_MAX:
            self._given = 0
            await asyncio.sleep(0)
        while not self._come:
            if self._failure is not None:
                raise self._failure
            self._given = 0
            self._woken = asyncio.get_running_loop().create_future()
            await self._woken
        self._given += 1
        return self._come.popleft()

    async def _ask(self) -> None:
        try:
            while self._take(await super()._request_call()):  # no name here: it would keep an ended call
                pass
        except Exception as error:  # noqa: BLE001 - the server ends, and so does its loop, by this
            self._failure = error
            self._come.clear()  # which ends these calls: grpc.aio's loop takes no more
            self._wake()

    def _take(self, call: Any) -> bool:
        """Keep a call that has come; return whether more may come. Behind a failure it ends here."""
        if self._failure is None:
            self._come.append(call)
            self._wake()
        return self._failure is None

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
