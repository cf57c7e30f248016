"""An event loop on which grpc.aio gets many of its events in each turn.

grpc.aio's thread writes one byte into a socket pair for each event, and its reader takes one byte a turn of
the loop. While turns are long, bytes pile up; some 280 of them fill the socket, the thread waits in its
write, and from then on each turn gets one event. On a loop that is not busy each event costs a turn.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import sys
import termios
from collections.abc import Callable, Coroutine
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
    """asyncio's loop; but for grpc.aio's reader, its callers see no difference. One of a process."""

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> Any:
        """Register a reader as asyncio does; of grpc.aio's bytes many are read at a time."""
        if isinstance(fd, socket.socket) and _is_of_grpc(callback):
            return super().add_reader(fd, _take, fd, partial(callback, *args))
        return super().add_reader(fd, callback, *args)


def _is_of_grpc(callback: Callable[..., Any]) -> bool:
    """Return whether this reads grpc.aio's socket: a method, or a part of one, of its completion queue."""
    method = callback.func if isinstance(callback, partial) else callback
    return type(getattr(method, "__self__", None)).__name__ == "PollerCompletionQueue"


def _take(read_socket: socket.socket, handle_events: Callable[[], Any]) -> None:
    count = int.from_bytes(fcntl.ioctl(read_socket, termios.FIONREAD, bytes(4)), sys.byteorder)
    if count > 1:
        read_socket.recv(min(count, TURN_EVENTS) - 1)  # the last is for the handler
    handle_events()
