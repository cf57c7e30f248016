"""Writes on the event loop while the disk is quick, in a thread while it is not.

A thread costs two switches and two wake-ups, some 0.2 ms on a small machine: as much as a small write that a
quick disk syncs. What is not quick must not hold up the loop, or heartbeats would wait for the disk; so the
last few writes tell, and one slow one is enough.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from tarry.replication.core import RunBlocking

QUICK_S: Final = 0.001
WRITES: Final = 8


class QuickDisk:
    """As RunBlocking, for what writes to one disk."""

    def __init__(self, in_thread: RunBlocking, now: Callable[[], float]) -> None:
        self._in_thread = in_thread
        self._now = now
        self._took_s: deque[float] = deque([QUICK_S], maxlen=WRITES)  # the first one goes in a thread

    async def __call__(self, work: Callable[[], Any], /) -> Any:
        return (
            self._timed(work)
            if max(self._took_s) < QUICK_S
            else await self._in_thread(lambda: self._timed(work))
        )

    def _timed(self, work: Callable[[], Any]) -> Any:
        began = self._now()
        try:
            return work()
        finally:
            self._took_s.append(self._now() - began)
