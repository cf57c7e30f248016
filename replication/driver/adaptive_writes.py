"""Journal writes on the event loop while the disk is quick, in a thread while it is not.

A thread costs two switches and two wake-ups: some 0.2 ms on a small machine, and 1 ms and more on a busy one,
for its write waits for the interpreter's lock, too. That is more than a small write takes that a quick disk
syncs. But what arrives while a thread writes shares the next write, so that a larger one, of which there are
many together, stays on the loop only where that takes no longer than a thread costs.

What is not quick must not hold up the loop, or heartbeats would wait for the disk; so the last few writes
tell, and one slow one is enough. One for which heartbeats did wait is remembered by time: a disk that stalls
now and then is quick in between, and would hold up the loop each time. A write in a thread may seem to stall
though the disk did not, so that it only prolongs what is remembered.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from tarry.replication.blocking import RunBlocking
from tarry.replication.durations import Durations

QUICK_S: Final = 0.001
"""The latest writes took less, where one is written on the loop."""
SMALL_QUICK_S: Final = 0.004
"""They took less than this, where one of `SMALL_BYTES_MAX` at most is."""
SMALL_BYTES_MAX: Final = 8 << 10
WRITES: Final = 8
STALL_S: Final = 0.02
"""A write that takes so long is a stall."""
PAUSE_S_MIN: Final = 30.0
PAUSE_S_MAX: Final = 240.0
"""How long nothing is written on the loop after a stall; the next doubles it, so long without halves it."""


class Writes:
    """Writes to one disk. Called as RunBlocking it writes off the event loop."""

    def __init__(self, off_loop: RunBlocking) -> None:
        self._off_loop = off_loop
        self.durations = Durations()

    def quick(self, size_bytes: int) -> bool:
        """Return whether the disk is quick enough to write so much `at_once`."""
        del size_bytes
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

    async def large(self, work: Callable[[], Any], /) -> Any:
        """Write off the event loop what is too much for it; that it took long tells nothing of the disk."""
        return await self._off_loop(work)

    async def __call__(self, work: Callable[[], Any], /) -> Any:
        return await self._off_loop(work)


class AdaptiveWrites(Writes):
    """Writes of which the smaller are on the event loop while the disk is quick."""

    def __init__(self, in_thread: RunBlocking, now: Callable[[], float]) -> None:
        """Take ``now``, a monotonic clock in seconds."""
        super().__init__(lambda work: in_thread(lambda: self._timed(work, self._note_beside)))
        self._in_thread = in_thread
        self._now = now
        self._took_s: deque[float] = deque([SMALL_QUICK_S], maxlen=WRITES)  # the first one goes in a thread
        self._pause_s = PAUSE_S_MIN
        self._pause_ends_s = -math.inf

    def quick(self, size_bytes: int) -> bool:
        """Return whether the latest writes were quick, for one of such a size, and none stalled of late."""
        quick_s = SMALL_QUICK_S if size_bytes <= SMALL_BYTES_MAX else QUICK_S
        return max(self._took_s) < quick_s and self._now() >= self._pause_ends_s

    def at_once(self, work: Callable[[], Any], /) -> Any:
        """Write on the event loop, and note how long it took."""
        return self._timed(work, self._note)

    async def large(self, work: Callable[[], Any], /) -> Any:
        """Write in the thread; how long it took counts among the durations only."""
        return await self._in_thread(lambda: self._timed(work, lambda _: None))

    async def long(self, work: Callable[[], Any], /) -> Any:
        """Write in the same thread; how long it took tells nothing of the disk."""
        return await self._in_thread(work)

    def _timed(self, work: Callable[[], Any], note: Callable[[float], None]) -> Any:
        began = self._now()
        try:
            return work()
        finally:
            took_s = self._now() - began
            self.durations.add(took_s)
            note(took_s)

    def _note(self, took_s: float) -> None:
        self._took_s.append(took_s)
        if took_s >= STALL_S:
            self._pause(self._now())

    def _note_beside(self, took_s: float) -> None:
        self._took_s.append(took_s)
        now = self._now()
        if took_s >= STALL_S and now < self._pause_ends_s:
            self._pause_ends_s = max(self._pause_ends_s, now + PAUSE_S_MIN)

    def _pause(self, now: float) -> None:
        quick_s = now - self._pause_ends_s
        while quick_s >= self._pause_s > PAUSE_S_MIN:
            quick_s -= self._pause_s
            self._pause_s /= 2
        self._pause_ends_s = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
