"""Measurement of a peer's wall clock by heartbeats.

A reading is kept against this node's monotonic clock, so that this node's own wall clock may jump without
seeming to take its peers along. A round trip of which one half was slow shows a clock wrong by up to half of
it; under load that is tens of milliseconds, and two peers err the same way. So the quickest of the last
few readings counts (the clock filter of NTP, RFC 5905 §10), and it is given with its error. One that a later
reading contradicts is dropped: the clock has been set since, and what it showed before says nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tarry.replication.clock import Clock

READINGS = 8


@dataclass(frozen=True, slots=True)
class Reading:
    """A peer's wall clock minus our monotonic one, and how far that can be off."""

    ahead_ms: float
    error_ms: float
    """Either way; 0 where nobody knows: then it is too low by the time it travelled."""
    travelled_ms: float
    """What to choose the best reading by; infinite where nobody knows."""

    def may_agree(self, other: Reading) -> bool:
        """Return whether one undisturbed clock may have given both."""
        return abs(self.ahead_ms - other.ahead_ms) <= self.error_ms + other.error_ms


@dataclass(slots=True)
class PeerClock:
    """The last few readings of one peer."""

    heard: float | None = None
    rtt_ms: float | None = None
    readings: deque[Reading] = field(default_factory=lambda: deque(maxlen=READINGS))

    def answer(self, clock: Clock, sent: float, wall_ms: int) -> None:
        """Add a reading from an answer: taken about half a round trip ago (Cristian's algorithm)."""
        now = clock.monotonic_s()
        self.heard = now
        self.rtt_ms = (now - sent) * 1000
        half_ms = self.rtt_ms / 2
        # both clocks are read to whole milliseconds
        reading = Reading(wall_ms + half_ms - now * 1000, half_ms + 1, self.rtt_ms)
        self.readings = deque([*filter(reading.may_agree, self.readings), reading], maxlen=READINGS)

    def hear(self, clock: Clock, wall_ms: int) -> None:
        """Add a reading from one way only: too low by the time that the heartbeat travelled."""
        self.heard = clock.monotonic_s()
        self.readings.append(Reading(wall_ms - self.heard * 1000, 0.0, float("inf")))

    def offset_ms(self, clock: Clock, wall_ms: float) -> tuple[float, float] | None:
        """Return the peer's wall clock minus a reading of ours, and its error; None before the first one.

        Who compares the offset with our clock again gives the reading that it compares with: between two the
        clock may be set, and it would seem to agree.
        """
        if not self.readings:
            return None
        best = min(reversed(self.readings), key=lambda reading: reading.travelled_ms)
        return best.ahead_ms + clock.monotonic_s() * 1000 - int(wall_ms), best.error_ms
