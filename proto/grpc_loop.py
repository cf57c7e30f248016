"""An event loop on which grpc.aio gets many of its events in each turn.

grpc.aio's thread writes one byte into a socket pair for each event, and its reader takes one byte a turn of
the loop. While turns are long, bytes pile up; some 280 of them fill the socket, the thread waits in its
write, and from then on each turn gets one event. On a loop that is not busy each event costs a turn.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from threading import Lock
from typing import Any, Final, TypeVar

if sys.platform != "win32":
    import fcntl
    import termios

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
        return super().add_reader(fd, *_reader(fd, callback, args))


@contextmanager
def many_events_of(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Have many events of grpc.aio in each turn of a loop whose first channel or server is made in the block.

    For a client, which cannot choose its program's loop. The block must not wait. Changes nothing where the
    loop has a channel already, is of another class that does not allow it, or cannot have readers.
    """
    add_reader = loop.add_reader

    def add(fd: Any, callback: Callable[..., Any], *args: Any) -> Any:
        return add_reader(fd, *_reader(fd, callback, args))

    try:
        loop.add_reader = add  # type: ignore[method-assign]
    except AttributeError:
        yield
        return
    try:
        yield
    finally:
        del loop.add_reader


def _reader(fd: Any, callback: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Callable[..., Any], ...]:
    """Return what is registered for a reader: of grpc.aio's the one that takes many bytes."""
    if sys.platform != "win32" and isinstance(fd, socket.socket) and _is_of_grpc(callback):
        return _take, fd, partial(callback, *args)
    return callback, *args


def _is_of_grpc(callback: Callable[..., Any]) -> bool:
    """Return whether this reads grpc.aio's socket: a method, or a part of one, of its completion queue."""
    method = callback.func if isinstance(callback, partial) else callback
    return type(getattr(method, "__self__", None)).__name__ == "PollerCompletionQueue"


_TAKING: Final = Lock()
"""All loops of a process read one socket: none takes the byte that another leaves for its handler."""


def _take(read_socket: socket.socket, handle_events: Callable[[], Any]) -> None:
    """Leave one byte of as many as there are events in it, and have the handler take that and all events.

    Another loop's reader may have taken it; then its handler has taken the events too.
    """
    with _TAKING, suppress(BlockingIOError):
        count = int.from_bytes(fcntl.ioctl(read_socket, termios.FIONREAD, bytes(4)), sys.byteorder)
        if count > 1:
            read_socket.recv(min(count, TURN_EVENTS) - 1)
        if count:
            handle_events()
