"""A run: rows of the key index in order, in one file that never changes.

    0000002a.run    ┌ hash place ┐┌ hash place ┐ …    blocks of 1,024 rows │ of each its first row, its crc32c

What is behind the blocks is in memory, 20 bytes a block, and its own checksum is in the manifest. So a lookup
reads one block of a run, and proves what it reads; the maps of files would have it read a page for each step
of its search, and prove nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from tarry.proto.files import sync_path
from tarry.wheel.columns import distinct
from tarry.wheel.state import Flags, Numbers, Rows

ROW: Final = np.dtype([("hash", "<u8"), ("place", "<u8")])
"""Hash of a topic and a key; the message: hour << 32 | global index."""
ROW_BYTES: Final = ROW.itemsize
BLOCK_ROWS: Final = 1_024
BLOCK_BYTES: Final = BLOCK_ROWS * ROW_BYTES
STEP_BLOCKS: Final = 16
"""Of each run that are in memory as several are merged."""
PLACES_END: Final = (1 << 64) - 1
"""The last place; no message has it."""

Words = NDArray[np.uint64]
IsDropped = Callable[[Numbers], Flags]
"""Flags hours, shape (n,), of which nothing is kept any more."""


class KeysDamaged(Exception):
    """A file of the key index is not what was written: it has to be built again from the hours."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{path}: {what}")


class Written(NamedTuple):
    """A run as the manifest names it."""

    number: int
    rows: int
    crc: int
    """Crc32c of what is behind the blocks."""


def hours_of(places: Words) -> Numbers:
    """Return the hours of places, shape (n,)."""
    return (places >> np.uint64(32)).astype(np.uint32)


def indices_of(places: Words) -> Numbers:
    """Return the global indices of places, shape (n,)."""
    return (places & np.uint64(0xFFFF_FFFF)).astype(np.uint32)


def words_of(hour: Numbers, global_index: Numbers) -> Words:
    """Return the places of messages as words, shape (n,)."""
    return hour.astype(np.uint64) << np.uint64(32) | global_index


def in_order(rows: Rows) -> Rows:
    """Return rows by hash and place, each once."""
    rows = rows[np.argsort(rows["hash"], kind="stable")]
    same = rows["hash"][1:] == rows["hash"][:-1]
    if bool((same & (rows["place"][1:] <= rows["place"][:-1])).any()):
        rows = rows[np.lexsort((rows["place"], rows["hash"]))]
        again = (rows["hash"][1:] == rows["hash"][:-1]) & (rows["place"][1:] == rows["place"][:-1])
        rows = rows[np.concatenate(([True], ~again))]
    return rows


class Run:
    """A run that is open for reading, from any thread, also after its file was deleted."""

    __slots__ = ("_crcs", "_fd", "_first_hash", "_first_place", "blocks", "path", "written")

    def __init__(self, folder: Path, written: Written) -> None:
        """Open a run. Raises OSError, KeysDamaged."""
        self._fd = -1
        self.written = written
        self.path = folder / run_name(written.number)
        self.blocks = -(-written.rows // BLOCK_ROWS)
        self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        behind = os.pread(self._fd, 20 * self.blocks, written.rows * ROW_BYTES)
        if len(behind) != 20 * self.blocks or google_crc32c.value(behind) != written.crc:
            raise KeysDamaged(self.path, "the first rows of its blocks are not what was written")
        self._first_hash = np.frombuffer(behind, "<u8", self.blocks)
        self._first_place = np.frombuffer(behind, "<u8", self.blocks, 8 * self.blocks)
        self._crcs = np.frombuffer(behind, "<u4", self.blocks, 16 * self.blocks)

    def __del__(self) -> None:
        """Close the file once nobody reads it: a lookup in a thread may outlast a merge."""
        if self._fd >= 0:
            os.close(self._fd)

    @property
    def rows(self) -> int:
        """The number of its rows."""
        return self.written.rows

    def find(self, key_hash: int, first: int, end: int, count: int) -> Words:
        """Return the first `count` places from `first` on, before `end`, of rows with a hash, ascending.

        Raises OSError, KeysDamaged.
        """
        wanted, found, left = np.uint64(key_hash), [np.empty(0, np.uint64)], count
        for block in range(max(0, self._behind(key_hash, first) - 1), self.blocks):
            if left <= 0 or (int(self._first_hash[block]), int(self._first_place[block])) >= (key_hash, end):
                break
            rows = self.read(block, block + 1)
            begin, stop = (
                np.searchsorted(rows["hash"], wanted),
                np.searchsorted(rows["hash"], wanted, "right"),
            )
            places = rows["place"][begin:stop]
            places = places[(places >= np.uint64(first)) & (places < np.uint64(end))][:left]
            found.append(places)
            left -= len(places)
        return np.concatenate(found)

    def find_any(self, hashes: Words, first: int) -> Rows:
        """Return the rows from the place `first` on that have one of the hashes, which ascend, each once.

        Raises OSError, KeysDamaged.
        """
        begin = np.maximum(np.searchsorted(self._first_hash, hashes) - 1, 0)
        end = np.searchsorted(self._first_hash, hashes, "right")
        for many in np.flatnonzero(end - begin > 2).tolist():  # some of its rows may be of earlier places
            begin[many] = max(0, self._behind(int(hashes[many]), first) - 1)
        lengths = np.maximum(end - begin, 0)
        nth = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        blocks = distinct(np.repeat(begin, lengths) + nth)
        stretches = np.split(blocks, np.flatnonzero(np.diff(blocks) > 1) + 1) if len(blocks) else []
        rows = (self.read(int(some[0]), int(some[-1]) + 1) for some in stretches)
        return np.concatenate([np.empty(0, ROW), *(_of_any(some, hashes, first) for some in rows)])

    def read(self, begin: int, end: int) -> Rows:
        """Return the rows of blocks, proven. Raises OSError, KeysDamaged."""
        end = min(end, self.blocks)
        size = min(self.rows, end * BLOCK_ROWS) * ROW_BYTES - begin * BLOCK_BYTES
        data = memoryview(os.pread(self._fd, size, begin * BLOCK_BYTES))
        for block, at in zip(range(begin, end), range(0, size, BLOCK_BYTES), strict=True):
            if google_crc32c.value(bytes(data[at : at + BLOCK_BYTES])) != self._crcs[block]:
                raise KeysDamaged(self.path, f"block {block} is not what was written")
        return np.frombuffer(data, ROW)

    def share_dropped(self, is_dropped: IsDropped) -> float:
        """Estimate the share of rows whose hours are dropped, by the first row of each block.

        Rows are ordered by a hash, so these are drawn as if by chance.
        """
        return float(np.count_nonzero(is_dropped(hours_of(self._first_place)))) / max(1, self.blocks)

    def _behind(self, key_hash: int, first: int) -> int:
        """Return the first block whose rows all come behind a hash and a place."""
        begin, end = (
            int(np.searchsorted(self._first_hash, np.uint64(key_hash), s)) for s in ("left", "right")
        )
        return begin + int(np.searchsorted(self._first_place[begin:end], np.uint64(first), "right"))


def having(rows: Rows, hashes: Words, first: int) -> Rows:
    """Return the rows, in any order, from the place `first` on that have one of the hashes, which ascend."""
    if len(hashes) == 1:
        some: Rows = rows[rows["hash"] == hashes[0]]
    else:
        at = np.minimum(np.searchsorted(hashes, rows["hash"]), len(hashes) - 1)
        some = rows[hashes[at] == rows["hash"]]
    return _from(some, first)


def _of_any(rows: Rows, hashes: Words, first: int) -> Rows:
    """Return the same of rows that are in order: mostly few of the hashes lie among them."""
    column = rows["hash"]
    low, high = np.searchsorted(hashes, column[[0, -1]])
    wanted = hashes[low : high + 1]
    begin, end = np.searchsorted(column, wanted), np.searchsorted(column, wanted, "right")
    found = [rows[a:b] for a, b in zip(begin.tolist(), end.tolist(), strict=True) if b > a]
    return _from(np.concatenate(found), first) if found else rows[:0]


def _from(rows: Rows, first: int) -> Rows:
    some: Rows = rows[rows["place"] >= np.uint64(first)]
    return some


def run_name(number: int) -> str:
    """Return the name of a run's file."""
    return f"{number:08x}.run"


def write_run(folder: Path, number: int, parts: Iterable[Rows]) -> Run | None:
    """Write a run of rows that come in order, some at a time, and sync it; None where there is no row.

    Raises OSError, and what the parts raise; then a file may be left that nothing names.
    """
    path, rows = folder / run_name(number), 0
    firsts: list[Rows] = []
    crcs: list[int] = []
    with path.open("wb", buffering=0) as file:
        for blocks in _in_blocks(parts):
            data = memoryview(blocks.tobytes())
            starts = range(0, len(data), BLOCK_BYTES)
            crcs += [google_crc32c.value(bytes(data[at : at + BLOCK_BYTES])) for at in starts]
            firsts.append(blocks[::BLOCK_ROWS].copy())
            rows += len(blocks)
            _write(file.fileno(), data, path)
        first = np.concatenate(firsts) if firsts else np.empty(0, ROW)
        behind = first["hash"].tobytes() + first["place"].tobytes() + np.array(crcs, "<u4").tobytes()
        _write(file.fileno(), memoryview(behind), path)
    if rows == 0:
        path.unlink()
        return None
    sync_path(path)
    return Run(folder, Written(number, rows, google_crc32c.value(behind)))


def merged(runs: Iterable[Run], is_dropped: IsDropped) -> Iterator[Rows]:
    """Yield the rows of runs in order, each once, without those of dropped hours.

    A few blocks of each run are in memory at once. Raises OSError, KeysDamaged.
    """
    sources = [_Source(run) for run in runs]
    while sources := [source for source in sources if source.fill()]:
        open_ends = [source.last() for source in sources if source.has_more]
        bound = min(open_ends) if open_ends else None
        rows = in_order(np.concatenate([source.take(bound) for source in sources]))
        yield rows[~is_dropped(hours_of(rows["place"]))]


class _Source:
    """A run that is being merged."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._next = 0
        self._rows: Rows = np.empty(0, ROW)

    @property
    def has_more(self) -> bool:
        """True if its file has rows that are not in memory."""
        return self._next < self._run.blocks

    def fill(self) -> bool:
        """Read on where nothing is left in memory; return whether anything is."""
        if not len(self._rows) and self.has_more:
            self._rows = self._run.read(self._next, self._next + STEP_BLOCKS)
            self._next += STEP_BLOCKS
        return len(self._rows) > 0

    def last(self) -> tuple[int, int]:
        """Return the last row in memory."""
        return int(self._rows["hash"][-1]), int(self._rows["place"][-1])

    def take(self, bound: tuple[int, int] | None) -> Rows:
        """Take the rows in memory up to a row; None: all."""
        hashes, end = self._rows["hash"], len(self._rows)
        if bound is not None:
            begin, stop = (int(np.searchsorted(hashes, np.uint64(bound[0]), s)) for s in ("left", "right"))
            places = self._rows["place"][begin:stop]
            end = begin + int(np.searchsorted(places, np.uint64(bound[1]), "right"))
        taken, self._rows = self._rows[:end], self._rows[end:]
        return taken


def _in_blocks(parts: Iterable[Rows]) -> Iterator[Rows]:
    """Yield the same rows as whole blocks; only the last has a part of one."""
    left: Rows = np.empty(0, ROW)
    for part in parts:
        left = np.concatenate((left, part))
        whole = len(left) // BLOCK_ROWS * BLOCK_ROWS
        if whole:
            yield left[:whole]
            left = left[whole:]
    if len(left):
        yield left


def _write(fd: int, data: memoryview, path: Path) -> None:
    while data:
        written = os.write(fd, data)
        if written == 0:
            raise OSError(f"{path}: nothing was written: no space left?")
        data = data[written:]
