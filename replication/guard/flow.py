"""How much is under way to one peer, and which of its answers are out of date.

The engine counts an entry as sent once handed to the transport, so a slow peer would pile up memory
without end; and a lost append makes every later one answered by "reset", each of which would send
everything again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True)
class Flow:
    """Appends to one peer. They are numbered; the peer answers with the number."""

    window_bytes_max: int
    patience_s: float
    """Without an answer for this long, what is under way counts as lost."""
    sequence: int = 0
    under_way: deque[tuple[int, int]] = field(default_factory=deque)
    under_way_bytes: int = 0
    answered_at: float = 0.0
    reset_floor: int = 0
    """Resets in answer to appends up to this number ask for what has been sent again since."""
    closed_until: float = 0.0

    def sent(self, size_bytes: int, now: float) -> int:
        if not self.under_way:
            self.answered_at = now
        self.sequence += 1
        self.under_way.append((self.sequence, size_bytes))
        self.under_way_bytes += size_bytes
        return self.sequence

    def answered(self, sequence: int, now: float) -> None:
        self.answered_at = now
        while self.under_way and self.under_way[0][0] <= sequence:
            self.under_way_bytes -= self.under_way.popleft()[1]

    def accepts_reset(self, sequence: int) -> bool:
        if not self.reset_floor < sequence <= self.sequence:
            return False
        self.reset_floor = self.sequence
        self.forget()
        return True

    def lost(self, now: float) -> bool:
        """Whether nothing has been answered for too long."""
        return bool(self.under_way) and now - self.answered_at > self.patience_s

    def forget(self) -> None:
        self.under_way.clear()
        self.under_way_bytes = 0

    def close_until(self, deadline: float) -> None:
        self.closed_until = deadline

    def open(self, now: float) -> bool:
        return now >= self.closed_until and self.under_way_bytes < self.window_bytes_max
