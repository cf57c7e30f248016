"""Places of a log's entries in its segments: 12 bytes an entry."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

_OFFSET_BITS: Final = 36


class Place(NamedTuple):
    segment: int
    """Number that the owner has given it."""
    start: int
    size_bytes: int


class EntryPlaces:
    """Entries follow each other without gaps. A thread may change them while others read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first = 0  # index of position 0
        self._gone = 0  # positions below; cut off once they are more than half
        self._places = array("Q")  # segment and start
        self._sizes = array("I")

    def get(self, index: int) -> Place | None:
        """Return where an entry is; None: it is not here."""
        with self._lock:
            position = index - self._first
            if not self._gone <= position < len(self._places):
                return None
            segment, start = divmod(self._places[position], 1 << _OFFSET_BITS)
            return Place(segment, start, self._sizes[position])

    def first_segment(self) -> int | None:
        """Return which segment has the first entry; None: there is no entry."""
        with self._lock:
            return self._places[self._gone] >> _OFFSET_BITS if self._gone < len(self._places) else None

    def first_from(self, segment: int) -> int:
        """Return the first index whose entry is in that segment or a later one."""
        with self._lock:
            return self._first + bisect_left(self._places, max(0, segment) << _OFFSET_BITS, self._gone)

    def put(self, first: int, segment: int, starts: Sequence[int], sizes: Sequence[int]) -> bool:
        """Add entries from an index on; return False if that leaves a gap."""
        with self._lock:
            if not starts:
                return True
            if self._gone == len(self._places):
                self._cut()
                self._first = first
            if first != self._first + len(self._places):
                return False
            self._places.extend((segment << _OFFSET_BITS) + start for start in starts)
            self._sizes.extend(sizes)
            return True

    def delete_from(self, index: int) -> None:
        """Forget the entries from an index on."""
        with self._lock:
            position = max(self._gone, index - self._first)
            del self._places[position:], self._sizes[position:]

    def delete_below(self, index: int) -> None:
        """Forget the entries below an index."""
        with self._lock:
            self._gone = min(max(self._gone, index - self._first), len(self._places))
            if self._gone > len(self._places) // 2:
                self._cut()

    def _cut(self) -> None:
        del self._places[: self._gone], self._sizes[: self._gone]
        self._first, self._gone = self._first + self._gone, 0
