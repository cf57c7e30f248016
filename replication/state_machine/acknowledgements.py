"""Consumer groups: what each has acknowledged, as a floor and a compressed set.

Everything below the floor is acknowledged; above it, the set says. Cost follows
the number of acknowledgements, not of messages (Pulsar's individual acks and
Kafka's committed offset, in one).
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from tarry.wheel.bitmaps import contains, members

Key: TypeAlias = tuple[str, int]
"""Group and queue."""


class Acknowledgements:
    """The acknowledged offsets of one group in one queue."""

    __slots__ = ("_changed", "_key", "acked", "floor")

    def __init__(
        self, floor: int = 0, acked: bytes = b"", key: Key = ("", 0), changed: set[Key] | None = None
    ) -> None:
        """Take ``changed``, the set that gets ``key`` when something changes."""
        self.floor = floor
        self.acked = BitMap64.deserialize(acked) if acked else BitMap64()
        self._key = key
        self._changed = set() if changed is None else changed
        self._changed.add(key)

    def add(self, offsets: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Acknowledge offsets; return which of them had been before.

        Args:
            offsets: shape (n,), distinct or not; a second of a kind is stale.
        """
        self._changed.add(self._key)
        n = len(offsets)
        if n and int(offsets[0]) == self.floor and bool(np.all(np.diff(offsets) == 1)) and not self.acked:
            self.floor += n  # in order, nothing above: the common case
            return np.zeros(n, dtype=np.bool_)
        stale = self.contains(offsets)
        distinct = np.zeros(n, dtype=np.bool_)
        distinct[np.unique(offsets, return_index=True)[1]] = True
        stale |= ~distinct
        self.acked.update(offsets[~stale].tolist())
        self._raise_floor()
        return stale

    def include(self, offsets: BitMap64) -> None:
        """Acknowledge a set, at a cost that does not follow the number of offsets."""
        before = len(self.acked)
        self.acked |= offsets
        self.acked.remove_range(0, self.floor)
        if len(self.acked) != before:
            self._changed.add(self._key)
            self._raise_floor()

    def seek(self, offset: int) -> None:
        """Go on at the offset: everything below counts as acknowledged, and nothing else does.

        Forward, what was acknowledged above the offset stays so.
        """
        self._changed.add(self._key)
        if offset < self.floor:
            self.acked.clear()
        elif self.acked:
            self.acked.remove_range(0, offset)
        self.floor = offset
        self._raise_floor()

    def contains(self, offsets: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which of the offsets, shape (n,), are acknowledged."""
        return (offsets < np.uint64(self.floor)) | contains(self.acked, offsets)

    def missing(self, start: int, end: int) -> NDArray[np.uint64]:
        """Return the offsets from start to before end that are not acknowledged, ascending."""
        return members(self.missing_set(start, end))

    def missing_set(self, start: int, end: int) -> BitMap64:
        """Return ``missing`` as a compressed set, whose cost does not follow the number of offsets."""
        offsets = BitMap64()
        offsets.add_range(max(start, self.floor), max(start, self.floor, end))
        offsets -= self.acked
        return offsets

    def missing_count(self, start: int, end: int) -> int:
        """Return how many offsets ``missing`` would return."""
        start = max(start, self.floor)
        if end <= start:
            return 0
        acked = self.acked.rank(end - 1) - (self.acked.rank(start - 1) if start else 0)
        return end - start - acked

    def serialize(self) -> bytes:
        """Return the set above the floor as a roaring bitmap, b"" where empty."""
        return bytes(self.acked.serialize()) if self.acked else b""

    def _raise_floor(self) -> None:
        run = 0  # length of the run of acknowledged offsets from the floor on
        step = 1
        while step and len(self.acked):
            if self.acked.rank(self.floor + run + step - 1) == run + step:
                run += step
                step *= 2
            else:
                step //= 2
        if run:
            self.acked.remove_range(self.floor, self.floor + run)
            self.floor += run
