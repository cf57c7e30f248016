"""An asyncio event loop whose time passes only when there is nothing left to do."""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

from tarry.node.failures import is_own
from tests.simulation.processor import PROCESSOR, Processor

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


class _Handle(asyncio.Handle):
    """Runs when its node's processor is free."""

    def _run(self) -> None:
        if not _put_off(self):
            super()._run()


class _Timer(asyncio.TimerHandle):
    def _run(self) -> None:
        if not _put_off(self):
            super()._run()


def _put_off(handle: asyncio.Handle) -> bool:
    processor = handle._context.get(PROCESSOR)  # type: ignore[attr-defined]
    if processor is None:
        return False
    loop: VirtualLoop = handle._loop  # type: ignore[attr-defined]
    if processor.free_at <= loop.now:
        return False
    if not processor.put_off:
        loop.call_at(processor.free_at, loop.resume, processor, context=Context())
    processor.put_off.append(handle)
    return True


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

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def _call_soon(
        self, callback: Callable[..., object], args: Any, context: Context | None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def resume(self, processor: Processor) -> None:
        """What was put off comes again, in its order: the processor is free, or was given more to do."""
        handles = list(processor.put_off)
        processor.put_off.clear()
        self._ready.extend(handles)  # type: ignore[attr-defined]


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
