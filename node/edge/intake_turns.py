"""Shares of turns of the event loop, for requests that come together: each goes on in its order."""

from __future__ import annotations

import asyncio
from collections import deque


class IntakeTurns:
    """Lets a request go on once its part of a turn is left; what takes more than a turn has one alone."""

    def __init__(self) -> None:
        self._left = 1.0  # of a turn, since some request last had to wait
        self._waiting: deque[tuple[float, asyncio.Future[None]]] = deque()
        self._renews = False  # who was let go on may not have yet: nobody overtakes

    async def enter(self, part: float) -> None:
        """Return once the caller may do what takes such a part of a turn; at once, where that is left."""
        if part <= self._left and not self._renews:
            self._left -= part
            return
        loop = asyncio.get_running_loop()
        may: asyncio.Future[None] = loop.create_future()
        self._waiting.append((part, may))
        if not self._renews:
            self._renews = True
            loop.call_soon(self._renew)
        await may

    def _renew(self) -> None:
        if self._waiting:
            self._left = 1.0
        went_on = False
        while self._waiting and (not went_on or self._waiting[0][0] <= self._left):
            part, may = self._waiting.popleft()
            if not may.done():  # its call has not been cancelled
                may.set_result(None)
                self._left -= part
                went_on = True
        self._renews = went_on
        if went_on:
            asyncio.get_running_loop().call_soon(self._renew)
