"""Avoidance of nodes for a time that depends on how slowly they answered, or that they failed.

The table is that of RocketMQ 5's MQFaultStrategy (``latencyMax`` and
``notAvailableDuration``): the longer the last answer took, the longer the node
is avoided; a failure counts as an answer after 10 s. Avoided is not forbidden:
when all are avoided, the one whose time is over first is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

LATENCY_MS: Final = (50, 100, 550, 1_800, 3_000, 5_000, 15_000)
AVOID_MS: Final = (0, 0, 2_000, 5_000, 6_000, 10_000, 30_000)
FAILURE_LATENCY_MS: Final = 10_000


def avoid_ms(latency_ms: float) -> int:
    """Return how long a node is avoided after an answer that took so long."""
    avoid = 0
    for at_least_ms, duration_ms in zip(LATENCY_MS, AVOID_MS, strict=True):
        if latency_ms >= at_least_ms:
            avoid = duration_ms
    return avoid


@dataclass(slots=True)
class _Entry:
    until_ms: float = 0.0
    latency_ms: float = 0.0


class Avoidance:
    """The table of one client. ``now_ms`` is a monotonic clock."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._entries: dict[str, _Entry] = {}

    def answered(self, address: str, latency_ms: float) -> None:
        """Record an answer; a quick one clears the address."""
        avoid = avoid_ms(latency_ms)
        self._entries[address] = _Entry(self._now_ms() + avoid if avoid else 0.0, latency_ms)

    def failed(self, address: str) -> None:
        """Record a failure to reach the address."""
        self._entries[address] = _Entry(self._now_ms() + avoid_ms(FAILURE_LATENCY_MS), FAILURE_LATENCY_MS)

    def available(self, address: str) -> bool:
        """Return whether the address is not being avoided now."""
        entry = self._entries.get(address)
        return entry is None or entry.until_ms <= self._now_ms()

    def order(self, addresses: Iterable[str]) -> list[str]:
        """Return the addresses: available ones (in the given order), then by when their time is over."""
        now_ms = self._now_ms()

        def wait_ms(address: str) -> float:
            entry = self._entries.get(address)
            return max(0.0, entry.until_ms - now_ms) if entry else 0.0

        return sorted(addresses, key=wait_ms)
