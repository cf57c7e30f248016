"""The load beside a scenario's own traffic: none, many single messages, or bulk.

A fault meets a cluster that has little to do, or one whose log, disks and links are full. The load's messages
go to topics of their own: what is due in the run to MASS, which one group consumes, the rest to LATER, which
nobody does.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

MASS, LATER = "mass", "later"
DAY_MS = 86_400_000
LATER_MS = (2 * DAY_MS, 3_650 * DAY_MS)
"""Beyond what any scenario does to a clock, up to ten years."""


@dataclass(frozen=True, slots=True)
class Load:
    """Rates and sizes of the messages beside the traffic of each kind."""

    name: str
    what: str
    singles_per_s: int = 0
    batches_per_s: float = 0.0
    batch_messages: int = 1_000
    body_bytes: int = 1_024
    later_share: float = 0.65
    """Of the batches are due in days to years."""
    cancel_share: float = 0.5
    """Of those, so many have a part of their messages cancelled again."""
    crowd_messages: int = 0
    """Due at one instant, once in a run."""


LIGHT = Load("light", "some 160 messages a second of every kind")
SINGLES = Load("singles", "1,000 single messages a second more", singles_per_s=1_000, body_bytes=100)
BULK = Load(
    "bulk",
    "batches of 1,000 x 1 KiB more, due in seconds to years, cancels, 10,000 at one instant",
    batches_per_s=2.0,
    crowd_messages=10_000,
)
LOADS = {load.name: load for load in (LIGHT, SINGLES, BULK)}


def drawn(seed: int, scenario: str, allowed: tuple[str, ...]) -> Load:
    """Return the load of a run: it follows from the seed and the scenario's name."""
    return LOADS[random.Random(f"{seed} {scenario} load").choice(allowed)]


def later_due_ms(now_ms: int, count: int, chance: random.Random) -> list[int]:
    """Return due times from days to years ahead, evenly over the orders of magnitude, ms since the epoch."""
    low, high = LATER_MS
    return [now_ms + round(low * (high / low) ** chance.random()) for _ in range(count)]
