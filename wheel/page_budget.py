"""A bound on the mapped index pages that are resident in this process.

A page read through a mapping counts as this process's memory until it is unmapped, although the page cache
could take it back. So that memory stays flat, however many messages are looked at, all mappings share one
bound: past it their pages are let go. A scan does not come back to what it has read: each stretch of it is
let go when the next is read. The data stays in the page cache.
"""

from __future__ import annotations

import mmap
from typing import Final

import numpy as np

from tarry.wheel.state import Numbers

AROUND_BYTES: Final = 65_536  # Linux maps this much around each page touched, where it is cached


class PageBudget:
    """The mapped pages of one wheel, at most `bytes_max` of them resident, as an estimate from what was
    touched.
    """

    __slots__ = ("_maps", "_max", "_scanned", "_touched")

    def __init__(self, bytes_max: int) -> None:
        self._max = bytes_max // AROUND_BYTES
        self._touched = 0
        self._maps: set[mmap.mmap] = set()
        self._scanned: dict[mmap.mmap, tuple[int, int]] = {}  # where the last stretch begins, and its size

    def scattered(self, pages: mmap.mmap, rows: Numbers, row_bytes: int) -> None:
        """Count rows of a mapping that have been read."""
        if len(rows) == 0:
            return
        around = rows // np.uint32(AROUND_BYTES // row_bytes)
        self.touch(pages, 1 + int(np.count_nonzero(around[1:] != around[:-1])))

    def consecutive(self, pages: mmap.mmap, start_byte: int, length_bytes: int) -> None:
        """Count a stretch of a mapping that is read; let go of the one that was before it."""
        begin, length = self._uncount_scanned(pages)
        if length:
            around = min(begin, AROUND_BYTES)  # mapped again as this stretch was begun
            pages.madvise(mmap.MADV_DONTNEED, begin - around, around + length)
        begin = start_byte - start_byte % mmap.PAGESIZE
        length = start_byte + length_bytes - begin
        self.touch(pages, _around(length))
        self._scanned[pages] = begin, length
        if not self._touched:  # all was let go; the stretch is read now
            self._maps.add(pages)
            self._touched = _around(length)

    def forget(self, pages: mmap.mmap) -> None:
        """Forget a mapping that is going to be unmapped."""
        self._maps.discard(pages)
        self._uncount_scanned(pages)

    def _uncount_scanned(self, pages: mmap.mmap) -> tuple[int, int]:
        begin, length = self._scanned.pop(pages, (0, 0))
        self._touched -= _around(length) if length else 0
        return begin, length

    def touch(self, pages: mmap.mmap, count: int) -> None:
        """Count pages of a mapping, or what Linux maps around each, that have been read."""
        self._maps.add(pages)
        self._touched += count
        if self._touched > self._max:
            for mapped in self._maps:
                mapped.madvise(mmap.MADV_DONTNEED)
            self._maps.clear()
            self._scanned.clear()
            self._touched = 0


def _around(length_bytes: int) -> int:
    return 1 + length_bytes // AROUND_BYTES
