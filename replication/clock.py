"""Time: where a node reads it, and how waits are aligned."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Source of time of one node; simulation and tests have their own."""

    def monotonic_s(self) -> float:
        """Return seconds that never run back; the zero means nothing.

        Must go on while the machine sleeps, or a lease outlives its term. With fractions of a ms: round trips
        are often shorter than one, and the engine and the event loop count in seconds.
        """

    def wall_ms(self) -> float:
        """Return ms since the epoch, UTC, by this node's own clock; cut to whole ones it would lag by 0.5."""


class SystemClock:
    """The operating system's clocks."""

    def monotonic_s(self) -> float:
        """Return CLOCK_BOOTTIME, which goes on while the machine is suspended."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall_ms(self) -> float:
        """Return CLOCK_REALTIME in ms."""
        return time.time_ns() / 1e6


def to_next(period_s: float, now_s: float) -> float:
    """Return the seconds until the next whole multiple of the period, more than 0.

    Timers that wait so wake an idle machine once for all of them (as Linux' round_jiffies does).
    """
    return period_s - now_s % period_s
