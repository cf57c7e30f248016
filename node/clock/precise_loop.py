"""An event loop whose timers are exact to some 0.1 ms; asyncio's own are late by up to 1 ms.

asyncio gives epoll its timeout in whole milliseconds, rounded up. Here a timerfd of the kernel
(timerfd_create(2)) is among the files that epoll waits for, and is set before each wait. Who asks is told
of both ends of each turn, so that turns that take too long are seen.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import selectors
import sys
import time
from typing import Any, Final

from tarry.proto.grpc_loop import GrpcEventLoop
from tarry.replication.loop_holds import Holds

_NONBLOCK_CLOEXEC: Final = os.O_NONBLOCK | os.O_CLOEXEC


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


def new(holds: Holds | None = None) -> asyncio.AbstractEventLoop:
    """Return a new event loop; where there is no timerfd, with asyncio's timers and turns not measured."""
    if not sys.platform.startswith("linux"):
        return GrpcEventLoop()
    return GrpcEventLoop(_PreciseSelector(holds or Holds()))


if sys.platform.startswith("linux"):

    class _PreciseSelector(selectors.EpollSelector):
        def __init__(self, holds: Holds) -> None:
            super().__init__()
            self._holds = holds
            libc = ctypes.CDLL(None, use_errno=True)
            self._settime = libc.timerfd_settime
            self._spec = _Itimerspec()
            self._spec_at = ctypes.byref(self._spec)
            self._timer = libc.timerfd_create(time.CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
            if self._timer < 0:
                raise OSError(ctypes.get_errno(), "timerfd_create")
            self.register(self._timer, selectors.EVENT_READ)

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            """Wait as EpollSelector does, and report both ends of the turn."""
            self._holds.end_turn()
            if timeout is not None and timeout > 0:
                self._set(timeout)
                timeout = None
            ready = super().select(timeout)
            self._holds.begin_turn()
            for at, (key, _) in enumerate(ready):
                if key.fd == self._timer:
                    del ready[at]
                    os.read(self._timer, 8)
                    break
            return ready

        def close(self) -> None:
            """Close the selector and its timer."""
            super().close()
            os.close(self._timer)

        def _set(self, seconds: float) -> None:
            value: Any = self._spec.value
            value.seconds = whole = int(seconds)
            value.nanoseconds = max(1, int((seconds - whole) * 1e9))
            self._settime(self._timer, 0, self._spec_at, None)
