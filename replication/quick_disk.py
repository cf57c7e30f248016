"""Writes on the event loop while the disk is quick, in a thread while it is not.

A thread costs two switches and two wake-ups, some 0.2 ms on a small machine: as much as a small write that a
quick disk syncs. What is not quick must not hold up the loop, or heartbeats would wait for the disk; so the
last few writes tell: most must have been quick, and one slow one is enough.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from tarry.replication.core import RunBlocking

QUICK_S: Final = 0.0015  # of the median
SLOW_S: Final = 0.01  # of any
WRITES: Final = 8


class QuickDisk:
    """As RunBlocking, for what writes to one disk."""

    def __init__(self, in_thread: RunBlocking, now: Callable[[], float]) -> None:
        self._in_thread = in_thread
        self._now = now
        self._took_s: deque[float] = deque([SLOW_S], maxlen=WRITES)  # the first ones go in a thread

    async def __call__(self, work: Callable[[], Any], /) -> Any:
        return self._timed(work) if self._is_quick() else await self._in_thread(lambda: self._timed(work))

    def _is_quick(self) -> bool:
        took_s = sorted(self._took_s)
        return took_s[len(took_s) // 2] < QUICK_S and took_s[-1] < SLOW_S

    def _timed(self, work: Callable[[], Any]) -> Any:
        began = self._now()
        try:
            return work()
        finally:
            self._took_s.append(self._now() - began)
