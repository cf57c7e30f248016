"""Pace: when each offset of a ready queue opens, where its topic has a release rate.

Messages leave the wheel at their due times, whatever their topic's rate: nothing behind them waits, and the
near queue stays small. The rate only says when each offset opens for delivery, by a formula:

    offset   anchor ──── catch-up rate ───► end of what misfired ──── release rate ───►
    opens    at_us       + 1 s / rate each                            + 1 s / rate each

Three numbers, replicated, say it all; so a new leader goes on in the same rhythm, and another rate counts
at once, also for what waits already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SECOND_US: Final = 1_000_000


@dataclass(slots=True)
class Pace:
    """The rhythm of one queue; times in µs since the epoch, rates per second, 0: unbounded."""

    release_rate: int = 0
    catch_up_rate: int = 0
    anchor: int = 0  # offsets below are open
    at_us: int = 0  # when the anchor opens
    catch_up_end: int = 0  # offsets from the anchor to here go at the catch-up rate

    @property
    def bounded(self) -> bool:
        """True if anything may be held back."""
        return self.release_rate > 0 or self.catch_up_end > self.anchor

    def opens_ms(self, offset: int) -> int:
        """Return when an offset opens, ms since the epoch; 0 where it is open for certain."""
        return -(-self._opens_us(offset) // 1000) if self.bounded and offset >= self.anchor else 0

    def opened(self, now_ms: int, units: int) -> int:
        """Return how many of the queue's units are open."""
        elapsed_us = now_ms * 1000 - self.at_us
        if not self.bounded:
            return units
        if elapsed_us < 0:
            return min(self.anchor, units)
        catching, rate = max(0, self.catch_up_end - self.anchor), self._slower()
        if catching and (count := elapsed_us * rate // SECOND_US + 1) <= catching:
            return min(self.anchor + count, units)
        if not self.release_rate:
            return units
        elapsed_us -= _after_us(catching, rate)
        return min(self.anchor + catching + max(0, elapsed_us * self.release_rate // SECOND_US + 1), units)

    def take_in(self, units: int, first_due_ms: int, now_ms: int, misfired: int) -> None:
        """Note that more units come behind ``units``, of which the first ``misfired`` catch up."""
        self._settle(units, now_ms, max(now_ms, first_due_ms))
        if misfired and self.catch_up_rate:
            self.catch_up_end = units + misfired

    def change(self, release_rate: int, catch_up_rate: int, units: int, now_ms: int) -> None:
        """Go on at other rates, from now."""
        self._settle(units, now_ms, now_ms)
        self.release_rate, self.catch_up_rate = release_rate, catch_up_rate
        if not catch_up_rate:
            self.catch_up_end = self.anchor

    def _settle(self, units: int, now_ms: int, next_ms: int) -> None:
        """Move the anchor to the first unit not open; ``next_ms``: when the next to come may open."""
        opened = self.opened(now_ms, units)
        at_us = self._opens_us(opened) if self.bounded else 0
        self.at_us = max(at_us, (next_ms if opened == units else now_ms) * 1000)
        self.anchor = opened
        self.catch_up_end = max(self.catch_up_end, opened)

    def _opens_us(self, offset: int) -> int:
        past = offset - self.anchor
        catching = max(0, min(past, self.catch_up_end - self.anchor))
        return (
            self.at_us + _after_us(catching, self._slower()) + _after_us(past - catching, self.release_rate)
        )

    def _slower(self) -> int:
        """Return the rate of catching up, which is never above the release rate."""
        return min(filter(None, (self.catch_up_rate, self.release_rate)), default=0)


def _after_us(count: int, rate: int) -> int:
    return -(-count * SECOND_US // rate) if rate else 0
