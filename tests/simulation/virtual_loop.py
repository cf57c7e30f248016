"""An asyncio event loop whose time passes only when there is nothing left to do."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from tarry.node.failures import is_own

T = TypeVar("T")


class Deadlock(Exception):
    """Everything waits and no timer is set."""


class _NoSelector(selectors.SelectSelector):
    """Sleeping is adding to the loop's time."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock
        if timeout > 0:
            self.loop.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Deterministic: no sockets, no threads, timers in order of their time, then of their making."""

    def __init__(self) -> None:
        selector = _NoSelector()
        selector.loop = self
        self.now = 1.0
        super().__init__(selector)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """What `main` returns; its timers take no time. Raises what nobody awaited, which would end a node."""
    loop = VirtualLoop()
    errors: list[BaseException] = []

    def handle(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if is_own(error := context.get("exception")):
            errors.append(error)

    loop.set_exception_handler(handle)
    asyncio.set_event_loop(loop)
    try:
        result = loop.run_until_complete(main)
        if errors:
            raise errors[0]
        return result
    finally:
        leftover = asyncio.all_tasks(loop)
        for task in leftover:
            task.cancel()
        if leftover:
            loop.run_until_complete(asyncio.gather(*leftover, return_exceptions=True))
        asyncio.set_event_loop(None)
        loop.close()
