"""Cluster time: the median of the members' clocks, carried forward by the monotonic one.

One wrong clock among three or more moves nothing. While a node leads, its cluster time
never runs back; where the median lies behind it, it stands until the median has caught
up, where the median lies ahead, it follows at once. A node that does not lead serves
nobody by its time, and takes over the leader's whichever way it lies.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from statistics import median_low
from typing import Final, Protocol

STEP_MS: Final = 5
"""Differences up to this are measuring noise, and are followed by at most 1 ms an update."""


class Clock(Protocol):
    """Where time comes from; the simulation has another one."""

    def monotonic_ms(self) -> float:
        """Return ms that never run back; the zero means nothing."""

    def wall_ms(self) -> int:
        """Return ms since the epoch, UTC, by this node's own clock."""


class SystemClock:
    """The operating system's clocks."""

    def monotonic_ms(self) -> float:
        """Return CLOCK_BOOTTIME in ms: it goes on while the machine is suspended, as a lease does."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) / 1e6

    def wall_ms(self) -> int:
        """Return CLOCK_REALTIME in ms."""
        return time.time_ns() // 1_000_000


class ClusterTime:
    """Cluster time at one node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._anchor_ms = clock.wall_ms() - clock.monotonic_ms()  # cluster time minus monotonic time
        self._last_ms = 0
        self.own_offset_ms = 0  # the node's own clock minus cluster time

    def now_ms(self) -> int:
        """Return cluster time in ms since the epoch; never less than before under the same leader."""
        now = int(self._clock.monotonic_ms() + self._anchor_ms)
        self._last_ms = max(self._last_ms, now)
        return self._last_ms

    def lead(self, offsets_ms: Iterable[float]) -> None:
        """Begin to lead: take the median of the members' clocks, wherever this node's time stood until now.

        What it has seen of time may be its own clock alone, and that may be wrong.
        """
        self._last_ms = 0
        self.update(offsets_ms)

    def update(self, offsets_ms: Iterable[float]) -> None:
        """Take the median of the members' clocks.

        Args:
            offsets_ms: each reachable peer's clock minus this node's own, ms.
        """
        clocks = [0.0, *offsets_ms]
        # of an even number the lower: rather late than early
        self._follow(self._clock.wall_ms() + median_low(clocks))

    def adopt(self, leader_now_ms: float) -> None:
        """Take over the leader's cluster time (a follower, with every heartbeat)."""
        self._last_ms = 0
        self._follow(leader_now_ms)

    def _follow(self, target_ms: float) -> None:
        monotonic = self._clock.monotonic_ms()
        ahead = target_ms - (monotonic + self._anchor_ms)
        if abs(ahead) <= STEP_MS:
            ahead = max(-1.0, min(1.0, ahead))
        self._anchor_ms += ahead
        self.own_offset_ms = round(self._clock.wall_ms() - (monotonic + self._anchor_ms))
