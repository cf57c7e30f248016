"""Hands: how much each consumer holds of one feed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(eq=False, slots=True)
class Batch:
    """What was handed over at once, under one lease."""

    consumer: str
    offsets: NDArray[np.uint64]
    until_ms: int
    bytes_each: float = 0.0  # of the records, on average
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = len(self.offsets)


@dataclass(slots=True)
class Hand:
    """What one consumer holds."""

    messages: int = 0
    record_bytes: float = 0.0
    batches: dict[Batch, None] = field(default_factory=dict)
    """Those of which something is left, oldest first."""


class Hands(dict[str, Hand]):
    """By consumer; who holds nothing has none."""

    def record_bytes(self, consumer: str) -> float:
        """Return the bytes of the records that the consumer holds."""
        hand = self.get(consumer)
        return hand.record_bytes if hand else 0.0

    def batches(self, consumer: str) -> list[Batch]:
        """Return the batches of which the consumer holds something, oldest first."""
        hand = self.get(consumer)
        return list(hand.batches) if hand else []

    def fill(self, batch: Batch) -> None:
        """The batch has been handed over."""
        hand = self.setdefault(batch.consumer, Hand())
        hand.batches[batch] = None
        hand.messages += len(batch.offsets)
        hand.record_bytes += len(batch.offsets) * batch.bytes_each

    def let_go(self, batch: Batch, count: int) -> None:
        """So many more messages of the batch are in hand no more."""
        if not count:
            return
        batch.left -= count
        hand = self[batch.consumer]
        hand.messages -= count
        hand.record_bytes -= count * batch.bytes_each
        if not batch.left:
            del hand.batches[batch]
        if not hand.messages:
            del self[batch.consumer]
