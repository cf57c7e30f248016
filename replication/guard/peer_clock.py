"""What heartbeats tell of a peer's wall clock.

A reading is kept against this node's monotonic clock, so that this node's own wall clock may jump without
seeming to take its peers along. A round trip of which one half was slow shows a clock wrong by up to half of
it; under load that is tens of milliseconds, and two peers err the same way. So the quickest of the last
few readings counts (the clock filter of NTP, RFC 5905 §10), and of it only what is beyond its error.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

READINGS = 8


class Clock(Protocol):
    def monotonic(self) -> float: ...
    def wall_ms(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Reading:
    """A peer's wall clock minus our monotonic one, and how far that can be off."""

    ahead_ms: float
    error_ms: float
    """Either way; 0 for a reading that is surely too low."""
    travelled_ms: float
    """What to choose the best reading by; infinite where nobody knows."""


@dataclass(slots=True)
class PeerClock:
    """The last few readings of one peer."""

    heard: float | None = None
    rtt_ms: float | None = None
    readings: deque[Reading] = field(default_factory=lambda: deque(maxlen=READINGS))

    def answer(self, clock: Clock, sent: float, wall_ms: int) -> None:
        """The peer's clock was read about half a round trip ago (Cristian's algorithm)."""
        now = clock.monotonic()
        self.heard = now
        self.rtt_ms = (now - sent) * 1000
        half_ms = self.rtt_ms / 2
        # both clocks are read to whole milliseconds
        self.readings.append(Reading(wall_ms + half_ms - now * 1000, half_ms + 1, self.rtt_ms))

    def hear(self, clock: Clock, wall_ms: int) -> None:
        """One way only: too low by the time the heartbeat travelled."""
        self.heard = clock.monotonic()
        self.readings.append(Reading(wall_ms - self.heard * 1000, 0.0, float("inf")))

    def offset_ms(self, clock: Clock) -> float | None:
        """Return the peer's wall clock minus ours: 0 within the reading's error, else the least it can be.

        None before the first reading. Rather too low than too high: time that is behind makes a
        message late, time that is ahead makes it early.
        """
        if not self.readings:
            return None
        best = min(reversed(self.readings), key=lambda reading: reading.travelled_ms)
        offset_ms = best.ahead_ms + clock.monotonic() * 1000 - clock.wall_ms()
        return 0.0 if abs(offset_ms) <= best.error_ms else offset_ms - best.error_ms
