"""How far a feed may hand over: as far as a majority knows that it may.

    heartbeat: "below this offset may have been handed over" ─► a majority answers ─► hand over below it

A new leader is elected by a majority, so by one that knows, and marks what it gives out again below that
offset. So no repeated delivery is unmarked, and a crash repeats no more than was reserved.
"""

from __future__ import annotations

import math
from collections import deque


class Reserve:
    """Of one feed, as long as it lives."""

    def __init__(self) -> None:
        self.limit: int | None = None  # hand over below it; None: there is nobody to tell
        self._said: deque[tuple[float, int]] = deque()  # send time of a heartbeat, limit; ascending

    def say(self, sent_s: float, limit: int) -> int:
        """Return what a heartbeat sent then has to tell: the limit, or what one before told if more."""
        if not self._said or limit > self._said[-1][1]:
            self._said.append((sent_s, limit))
        return self._said[-1][1]

    def revoke(self) -> None:
        """A heartbeat tells that nothing more is handed over."""
        self._said.clear()

    def hear(self, confirmed_s: float) -> None:
        """A majority has answered the heartbeats sent up to then; infinite: there is no other voter."""
        while len(self._said) > 1 and self._said[1][0] <= confirmed_s:
            self._said.popleft()
        heard = self._said and self._said[0][0] <= confirmed_s
        self.limit = None if confirmed_s == math.inf else self._said[0][1] if heard else 0

    def is_low(self, needed: int, most: int) -> bool:
        """Whether less than half of what may be reserved is, counting what is still to be answered."""
        return not self._said or self._said[-1][1] - needed < most // 2
