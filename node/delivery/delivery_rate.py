"""A group's delivery rate: how many messages it may be given now, and when more.

A token bucket with integers, so that nothing drifts. In any time of T ms a group is given rate * T / 1000
messages and a burst, at most. A new leader, and a group that is opened again, begins with an empty bucket:
what the one before has given counts in full, so a failover adds no burst.
"""

from __future__ import annotations

from typing import Final

BURST_MS: Final = 100
"""Of the rate, what was not used may be made up for; one message at least."""
STEP_MS: Final = 10
"""Of a high rate, what is waited for before more is given: a group wakes 100 times a second at most."""
_ONE: Final = 1_000  # a message: in a ms come as many parts of one as the rate says messages a second


class DeliveryRate:
    """Bound on the messages that all consumers of a group together are given, retries too."""

    def __init__(self, per_s_max: int, now_ms: int) -> None:
        """Begin empty; ``per_s_max`` 0: no bound."""
        self._per_s_max = per_s_max
        self._at_ms = now_ms
        self._parts = 0

    def change(self, per_s_max: int, now_ms: int) -> None:
        """Let another rate count from now on; what was saved up is within the new burst."""
        self._refill(now_ms)
        self._per_s_max = per_s_max
        self._parts = min(self._parts, self._parts_max)

    @property
    def _parts_max(self) -> int:
        return max(_ONE, self._per_s_max * BURST_MS)

    def _refill(self, now_ms: int) -> None:
        if now_ms > self._at_ms:  # a new leader's clock may stand for a while
            come = (now_ms - self._at_ms) * self._per_s_max
            self._parts, self._at_ms = min(self._parts_max, self._parts + come), now_ms

    def within(self, count: int, now_ms: int) -> int:
        """Return how many of so many messages may be given now."""
        if not self._per_s_max:
            return count
        self._refill(now_ms)
        return min(count, self._parts // _ONE)

    def take(self, count: int) -> None:
        """Count messages that are given; no more than ``within`` has said."""
        if self._per_s_max:
            self._parts -= count * _ONE

    def opens_ms(self, due_ms: int, now_ms: int) -> int:
        """Return when to give what is due then: at that time, or once the rate lets a step of it go."""
        if not self._per_s_max:
            return due_ms
        self._refill(now_ms)
        step = max(_ONE, self._per_s_max * STEP_MS // _ONE * _ONE)
        lacking = max(0, step - self._parts)
        return max(due_ms, now_ms - -lacking // self._per_s_max)
