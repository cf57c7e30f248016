"""Reservation of offsets: a feed delivers only below a limit that a majority knows of.

    heartbeat: "below this offset may have been delivered" ─► a majority answers ─► deliver below it

A new leader is elected by a majority, so by one that knows, and marks what it gives out again below that
offset. So no repeated delivery is unmarked, and a crash repeats no more than was reserved.
"""

from __future__ import annotations

import math
from collections import deque


class Reservation:
    """Reservation of one feed, as long as it lives."""

    def __init__(self) -> None:
        self.limit: int | None = None  # deliver below it; None: there is nobody to tell
        self._sent: deque[tuple[float, int]] = deque()  # send time of a heartbeat, limit; ascending

    def extend(self, sent_s: float, limit: int) -> int:
        """Return the limit for a heartbeat sent then: this, or an earlier heartbeat's if that is higher."""
        if not self._sent or limit > self._sent[-1][1]:
            self._sent.append((sent_s, limit))
        return self._sent[-1][1]

    def revoke(self) -> None:
        """End the reservation: a heartbeat tells that nothing more is delivered."""
        self._sent.clear()

    def confirm(self, confirmed_s: float) -> None:
        """Take note that a majority has answered heartbeats sent up to then; infinite: no other voter."""
        while len(self._sent) > 1 and self._sent[1][0] <= confirmed_s:
            self._sent.popleft()
        confirmed = self._sent and self._sent[0][0] <= confirmed_s
        self.limit = None if confirmed_s == math.inf else self._sent[0][1] if confirmed else 0

    def is_low(self, needed: int, most: int, limit: int) -> bool:
        """Return whether less than half of ``most`` is reserved above the needed, answered or not.

        No more is wanted than ``limit``.
        """
        return not self._sent or self._sent[-1][1] < min(needed + most // 2, limit)
