"""What heartbeats tell of a peer's wall clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float: ...
    def wall_ms(self) -> int: ...


@dataclass(slots=True)
class PeerClock:
    """A single measurement, the latest: offsets jump when clocks do, and that is what is looked for."""

    heard: float | None = None
    offset_ms: float | None = None
    rtt_ms: float | None = None

    def answer(self, clock: Clock, sent: float, wall_ms: int) -> None:
        """The peer's clock was read about half a round trip ago (Cristian's algorithm)."""
        now = clock.monotonic()
        self.heard = now
        self.rtt_ms = (now - sent) * 1000
        self.offset_ms = wall_ms + self.rtt_ms / 2 - clock.wall_ms()

    def hear(self, clock: Clock, wall_ms: int) -> None:
        """One way only: too low by the time the heartbeat travelled."""
        self.heard = clock.monotonic()
        self.offset_ms = float(wall_ms - clock.wall_ms())
