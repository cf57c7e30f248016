"""Histograms of how long something took."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

BOUNDS_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0)
"""Upper bounds of the buckets; a last one has what took longer."""


@dataclass(slots=True)
class Durations:
    """One histogram. One thread adds at a time; what another one reads meanwhile may lack the newest."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    """By bucket, each without those before it."""
    sum_s: float = 0.0

    def add(self, took_s: float) -> None:
        """Count one that took so long."""
        self.counts[bisect_left(BOUNDS_S, took_s)] += 1
        self.sum_s += took_s


@dataclass(frozen=True, slots=True)
class Timings:
    """Durations of what a node does again and again."""

    journal_write: Durations = field(default_factory=Durations)
    """Write and sync of a batch of entries."""
    flush: Durations = field(default_factory=Durations)
    """Sync of what was written without one, beside the writes."""
    commit: Durations = field(default_factory=Durations)
    """From the proposal of an entry here until it is applied here."""
    apply: Durations = field(default_factory=Durations)
    """Of one entry."""
    checkpoint: Durations = field(default_factory=Durations)
    snapshot: Durations = field(default_factory=Durations)
    """From the request for a peer's state until it is installed."""
    turn: Durations = field(default_factory=Durations)
    """Of the event loop; turns under 1 ms are not counted."""
