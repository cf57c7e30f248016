"""Checksums of a ready queue's units: one running crc32c, noted at the end of each block.

    offset      base        1024        2048      end
                 │──────────│───────────│──────────│
    crc32c      c0         c1          c2         crc      each of all units from offset 0 to there

A block is what it was if, and only if, its bytes lead from the checksum before it to the one behind it. What
lies below ``base`` was written by a version that noted none.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from tarry.wheel.columns import starts_of

BLOCK_UNITS: Final = 1_024
UNIT_BYTES: Final = 32


def block_starts(offsets: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return the positions at which ascending offsets enter another block of the queue."""
    return starts_of(offsets // np.uint64(BLOCK_UNITS))


@dataclass(frozen=True, slots=True)
class Stretch:
    """Units of a queue, all of one block, and the checksums that prove them."""

    first: int
    end: int
    before: int
    behind: int

    def is_proven_by(self, units: bytes) -> bool:
        """Return whether these are its units."""
        wanted = (self.end - self.first) * UNIT_BYTES
        return len(units) == wanted and int(google_crc32c.extend(self.before, units)) == self.behind


class QueueProof:
    """The checksums of one queue up to ``end``, its next offset."""

    __slots__ = ("_crcs", "base", "crc", "end")

    def __init__(self, end: int = 0, crc: int = 0, base: int | None = None, crcs: bytes = b"") -> None:
        """Take ``crcs`` as ``serialize`` gave them, from ``base`` on; without, nothing below end is proven.

        Raises ValueError where they are not as many as there are blocks.
        """
        self.end = end
        self.crc = crc
        self.base = end if base is None else base
        self._crcs: array[int] = array("I", (crc,) if base is None else np.frombuffer(crcs, "<u4").tolist())
        if self.base > end or len(self._crcs) != end // BLOCK_UNITS - self.base // BLOCK_UNITS + 1:
            raise ValueError(f"{len(self._crcs)} checksums of {self.base} to {end}")

    def copy(self) -> QueueProof:
        """Return the checksums as they are now, for a thread."""
        return QueueProof(self.end, self.crc, self.base, self.serialize())

    def serialize(self) -> bytes:
        """Return the checksums from ``base`` on, 4 bytes each."""
        return np.array(self._crcs, "<u4").tobytes()

    def extend(self, units: bytes) -> None:
        """Take in what is appended."""
        start, count = 0, len(units) // UNIT_BYTES
        while start < count:
            here = min(count - start, BLOCK_UNITS - self.end % BLOCK_UNITS)
            part = units[start * UNIT_BYTES : (start + here) * UNIT_BYTES]
            self.crc = google_crc32c.extend(self.crc, part)
            self.end += here
            start += here
            if self.end % BLOCK_UNITS == 0:
                self._crcs.append(self.crc)

    def forget(self, offset: int) -> None:
        """Forget the checksums of blocks below the offset, which are read no more."""
        base = offset - offset % BLOCK_UNITS
        if base > self.base:
            del self._crcs[: base // BLOCK_UNITS - self.base // BLOCK_UNITS]
            self.base = base

    def stretches(self, first: int, end: int) -> Iterator[Stretch]:
        """Yield the blocks that hold units of first to end, as far as they can be proven."""
        at = max(self.base, first - first % BLOCK_UNITS)
        before = self._at(at) if at < min(end, self.end) else 0
        while at < min(end, self.end):
            until = min(at - at % BLOCK_UNITS + BLOCK_UNITS, self.end)
            behind = self._at(until)
            yield Stretch(at, until, before, behind)
            at, before = until, behind

    def _at(self, offset: int) -> int:
        if offset == self.end:
            return self.crc
        return self._crcs[offset // BLOCK_UNITS - self.base // BLOCK_UNITS]
