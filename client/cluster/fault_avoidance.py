"""Avoidance of nodes that could not be reached, for ten seconds after each failure.

Avoided is not forbidden: when all are avoided, the one whose time is over first is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

AVOID_MS: Final = 10_000


class Avoidance:
    """Failed addresses of one client. ``now_ms`` is a monotonic clock."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._until_ms: dict[str, float] = {}

    def answered(self, address: str) -> None:
        """Record an answer: the address is as good as new."""
        self._until_ms.pop(address, None)

    def failed(self, address: str) -> None:
        """Record a failure to reach the address."""
        self._until_ms[address] = self._now_ms() + AVOID_MS

    def available(self, address: str) -> bool:
        """Return whether the address is not being avoided now."""
        return self._until_ms.get(address, 0.0) <= self._now_ms()

    def order(self, addresses: Iterable[str]) -> list[str]:
        """Return the addresses: available ones (in the given order), then by when their time is over."""
        now_ms = self._now_ms()
        return sorted(addresses, key=lambda address: max(now_ms, self._until_ms.get(address, 0.0)))
