"""Time, as consensus is given it."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds. Must go on while the machine sleeps (CLOCK_BOOTTIME), or a lease outlives its term."""

    def wall_ms(self) -> int: ...
