"""Messages of one feed in flight, by consumer and by batch."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(eq=False, slots=True)
class Batch:
    """Messages delivered at once, under one lease."""

    consumer: str
    offsets: NDArray[np.uint64]
    until_ms: int
    bytes_each: float = 0.0  # of the records, on average
    left: int = field(init=False)
    lowest: int = field(init=False)
    """Of the offsets: what is trimmed is looked for in all batches at once."""

    def __post_init__(self) -> None:
        self.left, self.lowest = len(self.offsets), int(self.offsets.min())


@dataclass(slots=True)
class ConsumerInFlight:
    """Messages in flight to one consumer."""

    messages: int = 0
    record_bytes: float = 0.0
    batches: dict[Batch, None] = field(default_factory=dict)
    """Those of which something is left, oldest first."""


class InFlight(dict[str, ConsumerInFlight]):
    """By consumer; a consumer with nothing in flight has no entry."""

    def record_bytes(self, consumer: str) -> float:
        """Return the bytes of the records in flight to the consumer."""
        held = self.get(consumer)
        return held.record_bytes if held else 0.0

    def batches(self, consumer: str) -> list[Batch]:
        """Return the batches of which something is in flight to the consumer, oldest first."""
        held = self.get(consumer)
        return list(held.batches) if held else []

    def add(self, batch: Batch) -> None:
        """Add a batch that is being delivered."""
        held = self.setdefault(batch.consumer, ConsumerInFlight())
        held.batches[batch] = None
        held.messages += len(batch.offsets)
        held.record_bytes += len(batch.offsets) * batch.bytes_each

    def remove(self, batch: Batch, count: int) -> None:
        """Take so many messages of the batch out."""
        if not count:
            return
        batch.left -= count
        held = self[batch.consumer]
        held.messages -= count
        held.record_bytes -= count * batch.bytes_each
        if not batch.left:
            del held.batches[batch]
        if not held.messages:
            del self[batch.consumer]
