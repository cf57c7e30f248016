"""Time, as consensus is given it."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds. Must go on while the machine sleeps (CLOCK_BOOTTIME), or a lease outlives its term."""

    def wall_ms(self) -> int: ...


def to_next(period_s: float, now_s: float) -> float:
    """Seconds until the next whole multiple of the period, more than 0: what waits so, wakes an idle
    machine once for all of it (as Linux' round_jiffies does)."""
    return period_s - now_s % period_s
