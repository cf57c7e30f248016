"""An event loop on which grpc.aio gets many of its events in each turn.

grpc.aio's thread writes one byte into a socket pair for each event, and its reader takes one byte a turn of
the loop. While turns are long, bytes pile up; some 280 of them fill the socket, the thread waits in its
write, and from then on each turn gets one event. On a loop that is not busy each event costs a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, TypeVar

TURN_EVENTS: Final = 64
"""For which a turn makes room in a full socket. Each takes some 0.1 ms, in what it wakes."""

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Return what the coroutine returns; as ``asyncio.run``, on a loop of this kind."""
    with asyncio.Runner(loop_factory=GrpcEventLoop) as runner:
        return runner.run(work)


class GrpcEventLoop(asyncio.SelectorEventLoop):
    """asyncio's loop; but for grpc.aio's reader, its callers see no difference."""

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> Any:
        """Register a reader as asyncio does; of grpc.aio's bytes many are read at a time."""
        return super().add_reader(fd, *_reader(callback, args))


@contextmanager
def many_events_of(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Have many events of grpc.aio in each turn of a loop whose first channel or server is made in the block.

    For a client, which cannot choose its program's loop. The block must not wait. Changes nothing where the
    loop has a channel already, is of another class that does not allow it, or cannot have readers.
    """
    add_reader, own = loop.add_reader, getattr(loop, "__dict__", {}).get("add_reader")

    def add(fd: Any, callback: Callable[..., Any], *args: Any) -> Any:
        return add_reader(fd, *_reader(callback, args))

    try:
        loop.add_reader = add  # type: ignore[method-assign]
    except AttributeError:
        yield
        return
    try:
        yield
    finally:
        if own is None:
            del loop.add_reader
        else:
            loop.add_reader = own  # type: ignore[method-assign]


def _reader(callback: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Callable[..., Any], ...]:
    """Return what is registered for a reader: of grpc.aio's the one that takes many bytes."""
    if _is_of_grpc(callback):
        return _take, partial(callback, *args)
    return callback, *args


def _is_of_grpc(callback: Callable[..., Any]) -> bool:
    """Return whether this reads grpc.aio's socket: a method, or a part of one, of its completion queue."""
    method = callback.func if isinstance(callback, partial) else callback
    return type(getattr(method, "__self__", None)).__name__ == "PollerCompletionQueue"


def _take(handle_events: Callable[[], Any]) -> None:
    """Have the handler take many bytes: each time one, and the events that are there.

    There is a byte for each event and none is taken without the handler, so that events it leaves, because
    one of them was an error, have their turn. All loops of a process read one socket: another may be empty.
    """
    with suppress(BlockingIOError):
        for _ in range(TURN_EVENTS):
            handle_events()
