"""Flow control of appends to one peer, and detection of outdated answers.

The engine counts an entry as sent once handed to the transport, so a slow peer would pile up memory
without end; and a lost append makes every later one answered by "reset", each of which would send
everything again.

The window follows the way: what is under way shall add no more than `delay_s` to the time that an append
takes on an empty way. It grows with each round of answers while it is what limits, and shrinks in proportion
where an append took longer (as delay-based congestion controls do, RFC 6817). So the queues of a slow link
stay short for all else that goes by it.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_EMPTY_WAY_S: Final = 10.0
"""For so long the least time that an append took is that of the empty way; then it is measured anew."""
_SLOWEST_BYTES_PER_S: Final = 128 << 10
"""What is under way counts as lost no sooner than it could have come at this rate."""


class _Sent(NamedTuple):
    number: int
    size_bytes: int
    at: float
    filled: bool
    """Whether it filled the window."""


@dataclass(slots=True)
class Flow:
    """Appends to one peer. They are numbered; the peer answers with the number."""

    window_bytes_max: int
    window_bytes_min: int
    delay_s: float
    patience_s: float
    """Without an answer for this long, and what the size takes, what is under way counts as lost."""
    window_bytes: int = 0
    sequence: int = 0
    under_way: deque[_Sent] = field(default_factory=deque)
    under_way_bytes: int = 0
    answered_at: float = 0.0
    reset_floor: int = 0
    """Resets in answer to appends up to this number ask for what has been sent again since."""
    closed_until: float = 0.0
    _empty_s: float = math.inf
    _empty_until: float = 0.0
    _shrunk_at: int = 0

    def __post_init__(self) -> None:
        self.window_bytes_min = min(self.window_bytes_min, self.window_bytes_max)
        self.window_bytes = self.window_bytes_min

    def sent(self, size_bytes: int, now: float) -> int:
        if not self.under_way:
            self.answered_at = now
        self.sequence += 1
        self.under_way_bytes += size_bytes
        filled = self.under_way_bytes >= self.window_bytes
        self.under_way.append(_Sent(self.sequence, size_bytes, now, filled))
        return self.sequence

    def answered(self, sequence: int, now: float) -> None:
        self.answered_at = now
        size_bytes, filled, latest = 0, False, None
        while self.under_way and self.under_way[0].number <= sequence:
            latest = self.under_way.popleft()
            size_bytes += latest.size_bytes
            filled = filled or latest.filled
        self.under_way_bytes -= size_bytes
        if latest is not None:
            self._adapt(latest, size_bytes if filled else 0, now)

    def _adapt(self, latest: _Sent, grown_bytes: int, now: float) -> None:
        taken_s = now - latest.at
        self._empty_s = min(self._empty_s, taken_s)
        wanted_s = self._empty_s + self.delay_s
        if now >= self._empty_until:  # with so little under way that the way is empty
            self._empty_s, self._empty_until = taken_s, now + _EMPTY_WAY_S
            self._shrink(self.window_bytes_min)
        elif latest.number <= self._shrunk_at:
            return  # sent by an earlier window
        elif taken_s <= wanted_s:
            self.window_bytes = min(self.window_bytes_max, self.window_bytes + grown_bytes)
        else:
            self._shrink(int(self.window_bytes * wanted_s / taken_s))

    def _shrink(self, window_bytes: int) -> None:
        self.window_bytes = max(self.window_bytes_min, window_bytes)
        self._shrunk_at = self.sequence

    def accepts_reset(self, sequence: int) -> bool:
        if not self.reset_floor < sequence <= self.sequence:
            return False
        self.reset_floor = self.sequence
        self.forget()
        return True

    def lost(self, now: float) -> bool:
        """Return whether nothing has been answered for too long."""
        patience_s = self.patience_s + self.under_way_bytes / _SLOWEST_BYTES_PER_S
        return bool(self.under_way) and now - self.answered_at > patience_s

    def forget(self) -> None:
        self.under_way.clear()
        self.under_way_bytes = 0

    def close_until(self, deadline: float) -> None:
        self.closed_until = deadline

    def open(self, now: float) -> bool:
        return now >= self.closed_until and self.under_way_bytes < self.window_bytes
