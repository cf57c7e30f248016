"""Receivers of the outcome of one message: a future, a callback, or a counter of one-way errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from tarry.client.errors import TarryError
from tarry.client.results import Scheduled


class Waiter(Protocol):
    """Receiver of one outcome; an asyncio.Future is one."""

    def done(self) -> bool: ...
    def set_result(self, result: Scheduled, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...


class Callback:
    """Calls back from the event loop, so that what the callback raises goes to the loop's handler."""

    __slots__ = ("_on_done",)

    def __init__(self, on_done: Callable[[Scheduled | BaseException], None]) -> None:
        self._on_done = on_done

    def done(self) -> bool:
        return False

    def set_result(self, result: Scheduled, /) -> None:
        asyncio.get_running_loop().call_soon(self._on_done, result)

    def set_exception(self, exception: BaseException, /) -> None:
        asyncio.get_running_loop().call_soon(self._on_done, exception)


class OneWay:
    """Waits for all one-way messages of a producer: counts errors."""

    def __init__(self) -> None:
        self.errors = 0
        self.last_error: BaseException | None = None

    def done(self) -> bool:
        return False

    def set_result(self, result: Scheduled, /) -> None:
        """Do nothing: only errors are counted."""

    def set_exception(self, exception: BaseException, /) -> None:
        self.errors += 1
        self.last_error = exception


class OneWayErrors:
    """The errors of a producer's one-way messages."""

    _one_way: OneWay

    @property
    def one_way_errors(self) -> int:
        """Messages of ``schedule_one_way`` that were not scheduled, or perhaps not."""
        return self._one_way.errors

    @property
    def one_way_last_error(self) -> BaseException | None:
        """The last of these errors."""
        return self._one_way.last_error


def fail(waiters: Iterable[Waiter], error: TarryError) -> None:
    """Give each waiter a copy of an error: one exception raised in many tasks mixes tracebacks."""
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(type(error)(error.reason, error.text, error.facts, error.retry_ms))
