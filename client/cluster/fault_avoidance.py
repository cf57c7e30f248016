"""Avoidance of nodes that could not be reached, for a time that doubles while they cannot.

Avoided is not forbidden: when all are avoided, the one whose time is over first is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

AVOID_MS_MIN: Final = 10_000
AVOID_MS_MAX: Final = 80_000


class Avoidance:
    """Failed addresses of one client. ``now_ms`` is a monotonic clock."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._until_ms: dict[str, float] = {}
        self._avoid_ms: dict[str, int] = {}

    def answered(self, address: str) -> None:
        """Record an answer: the address is as good as new."""
        self._until_ms.pop(address, None)
        self._avoid_ms.pop(address, None)

    def failed(self, address: str) -> None:
        """Record a failure to reach the address; one that comes while it is avoided doubles nothing."""
        known_ms = self._avoid_ms.get(address)
        if known_ms is None:
            self._avoid_ms[address] = AVOID_MS_MIN
        elif self.available(address):
            self._avoid_ms[address] = min(2 * known_ms, AVOID_MS_MAX)
        self._until_ms[address] = self._now_ms() + self._avoid_ms[address]

    def available(self, address: str) -> bool:
        """Return whether the address is not being avoided now."""
        return self._until_ms.get(address, 0.0) <= self._now_ms()

    def order(self, addresses: Iterable[str]) -> list[str]:
        """Return the addresses: available ones (in the given order), then by when their time is over."""
        now_ms = self._now_ms()
        return sorted(addresses, key=lambda address: max(now_ms, self._until_ms.get(address, 0.0)))
