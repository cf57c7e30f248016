"""Offsets of ready queues that were cancelled after their release, and their parts of a checkpoint.

Groups that are made later, or moved back, begin with them acknowledged. A queue's go with its tail: memory
follows what is cancelled of what the queue still holds, in compressed sets. A part has those of one queue,
and is kept until they change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.wheel.bitmaps import contains

_NONE: Final = BitMap64()


class CancelledOffsets:
    """By queue; a queue without any has no entry."""

    __slots__ = ("_changed", "_parts", "_sets")

    def __init__(self) -> None:
        self._sets: dict[int, BitMap64] = {}
        self._parts: dict[int, bytes] = {}  # of a checkpoint
        self._changed: set[int] = set()  # whose parts are to be built anew

    def of(self, queue: int) -> BitMap64:
        """Return a queue's, which is not to be changed."""
        return self._sets.get(queue, _NONE)

    def contains(self, queue: int, offsets: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Flag the offsets, shape (n,), that are cancelled."""
        return contains(self.of(queue), offsets)

    def add(self, queue: int, offsets: BitMap64) -> None:
        """Add a set of offsets of a queue."""
        if offsets:
            self._sets[queue] = self.of(queue) | offsets
            self._changed.add(queue)

    def trim(self, queue: int, first: int) -> None:
        """Forget a queue's offsets below."""
        held = self._sets.get(queue)
        if held is None or held.min() >= first:
            return
        held.remove_range(0, first)
        self._changed.add(queue)
        if not held:
            del self._sets[queue]

    def delete(self, queue: int) -> None:
        """Forget those of a queue that was deleted."""
        if self._sets.pop(queue, None) is not None:
            self._changed.add(queue)

    def build(self, most: int) -> int:
        """Build so many parts of a checkpoint anew, of queues that have changed; return how many."""
        built = min(most, len(self._changed))
        for _ in range(built):
            queue = self._changed.pop()
            held = self._sets.get(queue)
            if held is None:
                self._parts.pop(queue, None)
            else:
                part = log_pb.CancelledOffsets(queue=queue, offsets=bytes(held.serialize()))
                self._parts[queue] = log_pb.Checkpoint(cancelled=[part]).SerializeToString()
        return built

    def capture(self) -> list[bytes]:
        """Return the parts: laid end to end they are a Checkpoint with all, by ascending queue."""
        self.build(len(self._changed))
        return [self._parts[queue] for queue in sorted(self._parts)]

    def recover(self, parts: Iterable[log_pb.CancelledOffsets]) -> None:
        """Become what ``capture`` saw."""
        for part in parts:
            self.add(part.queue, BitMap64.deserialize(part.offsets))
