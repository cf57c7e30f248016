"""Journal writes on the event loop while the disk is quick, in a thread while it is not.

A thread costs two switches and two wake-ups, some 0.2 ms on a small machine: as much as a small write that a
quick disk syncs. What is not quick must not hold up the loop, or heartbeats would wait for the disk; so the
last few writes tell, and one slow one is enough. One for which heartbeats did wait is remembered by time: a
disk that stalls now and then is quick in between, and would hold up the loop each time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from tarry.replication.blocking import RunBlocking
from tarry.replication.durations import Durations

QUICK_S: Final = 0.001
WRITES: Final = 8
STALL_S: Final = 0.02
"""A write that takes so long is a stall."""
PAUSE_S_MIN: Final = 30.0
PAUSE_S_MAX: Final = 240.0
"""How long nothing is written on the loop after a stall; the next doubles it, so long without halves it."""


class Writes:
    """As RunBlocking, for what writes to one disk: each off the event loop."""

    def __init__(self, off_loop: RunBlocking) -> None:
        self._off_loop = off_loop
        self.durations = Durations()

    @property
    def quick(self) -> bool:
        """True if the disk is quick enough for a small write `at_once`."""
        return False

    def at_once(self, work: Callable[[], Any], /) -> Any:
        """Write on the event loop, and return what the work returns."""
        return work()

    def deferred(self, work: Callable[[], Any], /) -> Any:
        """Write on the event loop what waits for no sync; how long it took tells nothing of the disk."""
        return work()

    async def long(self, work: Callable[[], Any], /) -> Any:
        """Write off the event loop what takes long whatever the disk."""
        return await self._off_loop(work)

    async def __call__(self, work: Callable[[], Any], /) -> Any:
        return self.at_once(work) if self.quick else await self._off_loop(work)


class AdaptiveWrites(Writes):
    """Writes of which each is on the event loop while the disk is quick."""

    def __init__(self, in_thread: RunBlocking, now: Callable[[], float]) -> None:
        """Take ``now``, a monotonic clock in seconds."""
        super().__init__(lambda work: in_thread(lambda: self.at_once(work)))
        self._in_thread = in_thread
        self._now = now
        self._took_s: deque[float] = deque([QUICK_S], maxlen=WRITES)  # the first one goes in a thread
        self._pause_s = PAUSE_S_MIN
        self._pause_ends_s = -math.inf

    @property
    def quick(self) -> bool:
        """True if the latest writes were quick, and none stalled a short while ago."""
        return max(self._took_s) < QUICK_S and self._now() >= self._pause_ends_s

    def at_once(self, work: Callable[[], Any], /) -> Any:
        """Write in this thread, and note how long it took."""
        began = self._now()
        try:
            return work()
        finally:
            now = self._now()
            self._took_s.append(now - began)
            self.durations.add(now - began)
            if now - began >= STALL_S:
                self._pause(now)

    async def long(self, work: Callable[[], Any], /) -> Any:
        """Write in the same thread; how long it took tells nothing of the disk."""
        return await self._in_thread(work)

    def _pause(self, now: float) -> None:
        quick_s = now - self._pause_ends_s
        while quick_s >= self._pause_s > PAUSE_S_MIN:
            quick_s -= self._pause_s
            self._pause_s /= 2
        self._pause_ends_s = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
