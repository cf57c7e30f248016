"""Blocking methods made from those of the async client, with their types, signatures and docstrings."""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from tarry.client.blocking.loop_thread import LoopThread

AsyncT = TypeVar("AsyncT")
P = ParamSpec("P")
T = TypeVar("T")


class Twin(Protocol[AsyncT]):
    """Blocking object, and the async one that does its work in the client's thread."""

    _twin: AsyncT
    _thread: LoopThread


def blocking(
    method: Callable[Concatenate[AsyncT, P], Awaitable[T]],
) -> Callable[Concatenate[Twin[AsyncT], P], T]:
    """Return a method that calls this one of the async twin and waits for what it awaits."""

    @functools.wraps(method)
    def blocked(self: Twin[AsyncT], /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def work() -> T:  # also what returns a future is called in the loop's thread
            return await method(self._twin, *args, **kwargs)

        return self._thread.run(work())

    signature = inspect.signature(method)
    returned = re.sub(r"^asyncio\.Future\[(.*)\]$", r"\1", str(signature.return_annotation))
    blocked.__signature__ = signature.replace(return_annotation=returned)  # type: ignore[attr-defined]
    blocked.__annotations__ = {**method.__annotations__, "return": returned}
    return blocked


def iterating(
    method: Callable[Concatenate[AsyncT, P], AsyncGenerator[T]],
) -> Callable[Concatenate[Twin[AsyncT], P], Iterator[T]]:
    """Return a method that yields what this one of the async twin does, and waits for each."""

    @functools.wraps(method)
    def blocked(self: Twin[AsyncT], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        parts, under_way = method(self._twin, *args, **kwargs), list[asyncio.Task[Any]]()

        async def following() -> T | None:
            under_way[:] = filter(None, [asyncio.current_task()])
            return await anext(parts, None)

        async def close() -> None:
            if under_way and not under_way[0].done():  # an interrupt has cancelled it, and it ends its work
                await asyncio.wait(under_way)
            await parts.aclose()

        try:
            while (part := self._thread.run(following())) is not None:
                yield part
        finally:
            self._thread.run(close())

    signature = inspect.signature(method)
    yielded = re.sub(r"^AsyncGenerator\[(.*?)(, None)?\]$", r"\1", str(signature.return_annotation))
    annotation = f"Iterator[{yielded}]"
    blocked.__signature__ = signature.replace(return_annotation=annotation)  # type: ignore[attr-defined]
    # the async one's module need not know the name Iterator
    blocked.__annotations__ = {**method.__annotations__, "return": Iterator[yielded]}  # type: ignore[valid-type]
    return blocked
