"""Cluster time: what a majority of the members' clocks agree on, carried forward by the monotonic one.

Where this node's own clock agrees with enough others, within the error of measuring, it is
cluster time. Where it does not, it is wrong: then cluster time goes on as it went, and is moved
only as far as the other clocks are sure that it is off. So one wrong clock among three moves
nothing, and a slow network does not either. Where half of the clocks say this and half that, cluster
time goes on as it went: so one of two that jumps moves nothing either, the third node being away.
A clock that was found wrong counts as wrong until cluster time is where it is: that others can no longer
be measured well enough to tell does not make it right.

While a node leads, its cluster time never runs back: where the target lies behind, it stands
until the target has caught up; where it lies ahead, it follows at once. A node that does not
lead serves nobody by its time, and takes over the leader's whichever way it lies.

The own clock is read once for each look at the others: it may be set between two readings, and what one
says of the others is not true of the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median, median_low
from typing import Final, TypeAlias

from tarry.replication.clock import Clock

Offsets: TypeAlias = Callable[[float], list[tuple[float, float]]]
"""Gives for a reading of this node's own clock, in ms: of each peer that was ever heard, its clock minus that
reading, and how far that can be off either way."""

STEP_MS: Final = 5
"""Differences up to this are measuring noise, and are followed by at most 1 ms an update."""


class ClusterTime:
    """Cluster time at one node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._anchor_ms = clock.wall_ms() - self._monotonic_ms()  # cluster time minus monotonic time
        self._last_ms = 0
        self._behind_ms = 0.0  # what the clocks may show, minus cluster time
        self._adopted = False
        self._own_is_wrong = False  # as far as this leader has found out
        self.own_offset_ms = 0  # the node's own clock minus cluster time

    def now_ms(self) -> int:
        """Return cluster time in ms since the epoch; never less than before under the same leader."""
        now = int(self._monotonic_ms() + self._anchor_ms)
        self._last_ms = max(self._last_ms, now)
        return self._last_ms

    def latest_ms(self) -> int:
        """Return the latest that the clocks may show, in whole ms: what a delay is counted from.

        A node whose own clock is wrong knows the time by the others' alone, and too early by as much as a
        message travels; the next leader may know better, and would deliver that much too soon.
        """
        latest = self._monotonic_ms() + self._anchor_ms + self._behind_ms
        return max(self.now_ms(), math.ceil(latest))

    def seconds_until(self, at_ms: int) -> float:
        """Return how long it is until ``now_ms`` says so, to the fraction of a ms; 0 where it does."""
        if at_ms <= self._last_ms:
            return 0.0
        return max(0.0, at_ms - self._monotonic_ms() - self._anchor_ms) / 1000

    def sure(self, offsets_ms: Offsets) -> bool:
        """Return whether it is known what time it is: from a leader, or since these clocks agree."""
        return self._adopted or _agrees(offsets_ms(self._clock.wall_ms()))

    def lead(self, offsets_ms: Offsets) -> None:
        """Begin to lead, wherever this node's time stood until now.

        What it has seen of time may be its own clock alone, and that may be wrong: so of an even number of
        clocks that differ the lower counts, rather late than early; but for a node that has heard a leader.
        """
        wall_ms = self._clock.wall_ms()
        clocks = offsets_ms(wall_ms)
        self._last_ms = 0
        self._own_is_wrong = False
        if not _agrees(clocks) and not self._adopted:
            least = median_low([0.0, *(offset - error for offset, error in clocks)])
            self._anchor_ms = wall_ms + least - self._monotonic_ms()
        self._keep_to(clocks, wall_ms)

    def update(self, offsets_ms: Offsets) -> None:
        """Keep to the members' clocks."""
        wall_ms = self._clock.wall_ms()
        self._keep_to(offsets_ms(wall_ms), wall_ms)

    def _keep_to(self, clocks: list[tuple[float, float]], wall_ms: float) -> None:
        now = self._monotonic_ms() + self._anchor_ms - wall_ms
        self._own_is_wrong = not _agrees(clocks) or (self._own_is_wrong and abs(now) > STEP_MS)
        if not self._own_is_wrong:
            self._follow(wall_ms, wall_ms)
            return
        nearest = [min(max(now, offset - error), offset + error) for offset, error in clocks]
        latest = [offset + error for offset, error in clocks]
        self._follow(wall_ms + _middle([0.0, *nearest], now), wall_ms + _middle([0.0, *latest], now))

    def adopt(self, leader_now_ms: float) -> None:
        """Take over the leader's cluster time (a follower, with every heartbeat)."""
        self._last_ms = 0
        self._adopted = True
        self._follow(leader_now_ms, leader_now_ms)

    def _monotonic_ms(self) -> float:
        return self._clock.monotonic_s() * 1000

    def _follow(self, target_ms: float, latest_ms: float) -> None:
        monotonic = self._monotonic_ms()
        ahead = target_ms - (monotonic + self._anchor_ms)
        if abs(ahead) <= STEP_MS:
            ahead = max(-1.0, min(1.0, ahead))
        self._anchor_ms += ahead
        self._behind_ms = max(0.0, latest_ms - (monotonic + self._anchor_ms))
        self.own_offset_ms = round(self._clock.wall_ms() - (monotonic + self._anchor_ms))


def _middle(said: list[float], now: float) -> float:
    """Return the middle one of the clocks; of an even number, of these and the time until now."""
    return median(said if len(said) % 2 else [*said, now])


def _agrees(clocks: list[tuple[float, float]]) -> bool:
    """Say whether a majority of the clocks, this node's own among them, may show the same time."""
    same = 1 + sum(abs(offset) <= error for offset, error in clocks)
    return 2 * same > 1 + len(clocks)
