"""What came of one seed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

COUNTED = ("faults", "elections", "transfers", "membership_changes", "snapshots")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Equal for equal seeds, to the last event."""

    world: str
    seed: int
    failure: str | None
    acknowledged: int
    lost: int
    virtual_s: float
    history_hash: str
    counts: dict[str, int] = field(default_factory=dict)
    """Those of `COUNTED`, and others."""
    history: tuple[str, ...] = ()
    """Where it failed."""


def digest(parts: Sequence[object]) -> str:
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]
