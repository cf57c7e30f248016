"""One hour's messages on disk: the delay log and the delay index.

    delay.log     ┌ length u32 │ record ┐┌ length u32 │ record ┐ …     appended, never changed
                               ▲
    delay.index   ┌ offset ────┘ size due … ┐┌ … ┐ …                   unit k: global index k

Both only grow. A record is proven by the crc32c in its unit, the index by `index_crc`, the running crc32c of
all its bytes.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice, repeat
from pathlib import Path
from typing import ClassVar, Final, TypeAlias, TypeVar

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from tarry.wheel.cached_reads import FilePlaces, Pread
from tarry.wheel.page_budget import AROUND_BYTES, PageBudget
from tarry.wheel.state import Flags, Numbers, Rows, WheelDamaged

UNIT: Final = np.dtype(
    [
        ("offset", "<u8"),  # of the record in delay.log, behind its length
        ("size", "<u4"),  # of the record
        ("due_in_hour_ms", "<u4"),
        ("local_index", "<u4"),  # how many units of the same second come before
        ("pre_global_index", "<u4"),  # the one before in the same second; NONE: it is the first
        ("topic", "<u4"),
        ("crc32c", "<u4"),  # of the record
        ("tag_mask", "<u8"),
    ]
)
UNIT_BYTES: Final = UNIT.itemsize
_ONE_UNIT: Final = struct.Struct("<QIIIIIIQ")
_SHARED: Final = ("size", "due_in_hour_ms", "topic", "crc32c", "tag_mask")
"""Fields that a unit has in the far log as well."""
LENGTH_BYTES: Final = 4
INDEX_NAME: Final = "delay.index"
THIN_NAME: Final = "delay.index.thin"
"""Of an index that takes the place of the other (see thinning.py)."""
BLOCK_UNITS: Final = 16_384
_SCATTERED_UNITS: Final = 2
"""Fewer units than that for each 64 KiB of an index are read one by one: a read takes some 1 us, to map
what is around a unit and let it go some 9. More would wait for the disk one by one, where the map reads
what is around the first."""
_SINGLE_READS: Final = 4  # so few are read sooner one by one than as runs

T = TypeVar("T")
Places: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]


def checksums(records: Sequence[bytes]) -> Numbers:
    """Return crc32c of each record."""
    return np.fromiter(map(google_crc32c.value, records), np.uint32, len(records))


def lengths(records: Sequence[bytes]) -> Numbers:
    """Return bytes of each record."""
    return np.fromiter(map(len, records), np.uint32, len(records))


def offsets(sizes: Numbers, head_bytes: int, log_bytes: int) -> tuple[NDArray[np.uint64], int]:
    """Return the offsets of records behind `log_bytes`, each behind its head, and the end of all."""
    ends = np.cumsum(sizes, dtype=np.uint64)
    ends += np.arange(1, len(sizes) + 1, dtype=np.uint64) * np.uint64(head_bytes) + np.uint64(log_bytes)
    return ends - sizes, int(ends[-1])


def index_path(folder: Path) -> Path:
    """Return the path of an hour's index as it is now; to use the file, see ``on_index``."""
    thin = folder / THIN_NAME
    return thin if thin.exists() else folder / INDEX_NAME


def on_index(folder: Path, use: Callable[[Path], T]) -> T:
    """Use an hour's index, which ``thinning.settle`` may rename in its thread meanwhile. Raises OSError."""
    try:
        return use(folder / THIN_NAME)
    except FileNotFoundError:
        return use(folder / INDEX_NAME)


def is_there(units: Rows) -> Flags:
    """Flag units, shape (n,), that are not thinned out: records lie behind their lengths, never at 0."""
    there: Flags = units["offset"] != 0
    return there


def end_before(units: Rows, place: int) -> int:
    """Return where the record of the unit before a place ends in the log; 0 before the first."""
    return int(units["offset"][place - 1]) + int(units["size"][place - 1]) if place else 0


def converted(units: Rows, unit: np.dtype[np.void]) -> Rows:
    """Return units of an index or the far log in the other form; what says where they lie is zero."""
    rows = np.zeros(len(units), unit)
    for name in _SHARED:
        rows[name] = units[name]
    return rows


def walk_ahead(index: Path, last: int, count: int) -> None:
    """Bring the last `count` units of a chain that ends in `last` into the page cache, as far as it reads."""
    with suppress(OSError), index.open("rb", buffering=0) as file:
        for _ in range(count):
            unit = os.pread(file.fileno(), UNIT_BYTES, last * UNIT_BYTES)
            if len(unit) < UNIT_BYTES:
                break
            _, _, _, _, last, *_ = _ONE_UNIT.unpack(unit)


class DelayLog:
    """The delay log and index of one hour. Files are opened by the first use and closed by `close`."""

    __slots__ = (
        "_budget",
        "_index_fd",
        "_log_fd",
        "_map",
        "_view",
        "folder",
        "index_crc",
        "log_bytes",
        "units",
    )
    unit: ClassVar[np.dtype[np.void]] = UNIT
    head_bytes: ClassVar[int] = LENGTH_BYTES
    held_units_max: ClassVar[int] = 1_024
    """Of a small index, which is proven whole, and held in memory while its files are open."""

    def __init__(
        self, folder: Path, budget: PageBudget, log_bytes: int = 0, units: int = 0, index_crc: int = 0
    ) -> None:
        self.folder = folder
        self.log_bytes = log_bytes
        self.units = units
        self.index_crc = index_crc
        self._log_fd = -1
        self._index_fd = -1
        self._map: mmap.mmap | None = None
        self._view: Rows | None = None
        self._budget = budget

    @property
    def log_path(self) -> Path:
        return self.folder / "delay.log"

    @property
    def index_path(self) -> Path:
        return index_path(self.folder)

    def open(self, *, create: bool = True) -> None:
        """Open both files, creating them where they are missing. Raises OSError."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        if self._log_fd < 0:
            self._log_fd = os.open(f"{self.folder}/delay.log", flags, 0o644)
        if self._index_fd < 0:
            try:
                self._index_fd = os.open(f"{self.folder}/{THIN_NAME}", flags & ~os.O_CREAT)
            except FileNotFoundError:  # as in on_index, which makes none
                self._index_fd = os.open(f"{self.folder}/{INDEX_NAME}", flags, 0o644)

    def close(self) -> None:
        """Close the files; the next use opens them again."""
        self._unmap()
        if self._log_fd >= 0:
            os.close(self._log_fd)
        if self._index_fd >= 0:
            os.close(self._index_fd)
        self._log_fd = self._index_fd = -1

    def extend(self, rows: Rows, records: Sequence[bytes]) -> None:
        """Append units whose records come behind one another: one write to each file.

        Their offsets are set here. Raises OSError; then recover.
        """
        self.open()
        rows["offset"], end = offsets(rows["size"], self.head_bytes, self.log_bytes)
        pieces = [b""] * (2 * len(rows))
        pieces[0::2] = self.heads(rows)
        pieces[1::2] = records
        self._write(self._log_fd, b"".join(pieces), self.log_bytes)
        index = rows.tobytes()
        held = self.index().tobytes() + index if self.is_held else b""
        if len(held) > self.held_units_max * self.unit.itemsize:  # it is read from its file from now on
            self._write(self._index_fd, held, 0)
            self._unmap()
        else:
            self._write(self._index_fd, index, self.units * self.unit.itemsize)
            if held:
                self._view = np.frombuffer(held, self.unit)
        self.log_bytes = end
        self.units += len(rows)
        self.index_crc = google_crc32c.extend(self.index_crc, index)

    @property
    def is_held(self) -> bool:
        """True if the index is in memory as it was written, whatever happens to its file."""
        return self.units == 0 or (self._view is not None and self._map is None)

    def hold(self) -> None:
        """Read a small index into memory.

        Raises OSError, and WheelDamaged where it is not what was written.
        """
        with on_index(self.folder, lambda path: path.open("rb")) as file:
            index = file.read(self.units * self.unit.itemsize)
        self.check_index(google_crc32c.value(index))
        self._unmap()
        self._view = np.frombuffer(index, self.unit)

    def check_index(self, crc: int) -> None:
        """Compare the checksum of what the file has with what was written. Raises WheelDamaged."""
        if crc != self.index_crc:
            raise WheelDamaged(self.index_path, f"crc32c {crc:08x}, where {self.index_crc:08x} should be")

    def thin(self, index_crc: int) -> None:
        """Go on with the thin index that has taken the place of this one."""
        self._unmap()
        if self._index_fd >= 0:
            os.close(self._index_fd)
        self._index_fd = -1
        self.index_crc = index_crc

    def heads(self, rows: Rows) -> list[bytes]:
        """Return the bytes before each unit's record in the log; the units' offsets are set."""
        return rows["size"].astype("<u4").view("V4").tolist()  # type: ignore[no-any-return]

    def index(self) -> Rows:
        """Return all units, a read-only view of the file or of what is held.

        Raises WheelDamaged where the file is too short.
        """
        view = self._view
        if view is None or len(view) < self.units:
            self.open()
            if self.units == 0:
                return np.empty(0, self.unit)
            self._unmap()
            try:
                self._map = mmap.mmap(
                    self._index_fd, self.units * self.unit.itemsize, access=mmap.ACCESS_READ
                )
            except ValueError as short:
                raise WheelDamaged(self.index_path, f"shorter than its {self.units} units") from short
            self._view = view = np.frombuffer(self._map, self.unit)
        return view[: self.units]

    def _unmap(self) -> None:
        if self._map is not None:
            self._budget.forget(self._map)
        self._view = self._map = None

    def units_at(self, global_index: Numbers) -> Rows:
        """Return a copy of some units, shape (n,), in the order asked; each must exist.

        What lies scattered is read without the mapping: each place would have pages mapped, and let go.
        Raises OSError and WheelDamaged.
        """
        if not self.is_held and self._are_scattered(global_index):
            self.open()
            starts = (global_index * np.int64(self.unit.itemsize)).tolist()
            return np.frombuffer(self._index_bytes(starts), self.unit)
        return self.units_mapped(global_index)

    def units_mapped(self, global_index: Numbers) -> Rows:
        """Return units as `units_at` does, through the mapping: of a chain, whose walk has mapped them."""
        rows: Rows = self.index().take(global_index)
        if self._map is not None:
            self._budget.scattered(self._map, global_index, self.unit.itemsize)
        return rows

    def _are_scattered(self, global_index: Numbers) -> bool:
        around = global_index // np.uint32(AROUND_BYTES // self.unit.itemsize)
        return len(around) < _SCATTERED_UNITS * int(np.count_nonzero(np.bincount(around)))

    def _index_bytes(self, starts: Sequence[int]) -> bytearray:
        """Read the units that begin there in the index, whose file is open, one by one."""
        size = self.unit.itemsize
        found = bytearray().join(map(os.pread, repeat(self._index_fd), repeat(size), starts))
        if len(found) < size * len(starts):
            raise WheelDamaged(self.index_path, f"shorter than its {self.units} units")
        return found

    def chain(self, last: int, count: int) -> Numbers:
        """Return the `count` global indices of a second's chain that ends in `last`, ascending.

        The walk is a list that feeds on itself: map reads each element as extend has just added it.
        """
        before = self.index()["pre_global_index"].data
        walked = [last]
        try:
            walked.extend(islice(map(before.__getitem__, walked), count - 1))
        except IndexError:
            raise WheelDamaged(
                self.index_path, f"a chain of {count} units breaks after {len(walked)}"
            ) from None
        return np.array(walked[::-1], np.uint32)  # whoever follows it reads the units, which counts the pages

    def block(self, start: int, end: int) -> Rows:
        """Return a view of the units from `start` to `end`, to be read at once."""
        rows = self.index()[start:end]
        if self._map is not None:
            size = self.unit.itemsize
            self._budget.consecutive(self._map, start * size, len(rows) * size)
        return rows

    def index_places(self, start: int, end: int) -> FilePlaces:
        """Return where the units from `start` to `end` lie, a block each."""
        starts = range(start, end, BLOCK_UNITS)
        sizes = [(min(end, first + BLOCK_UNITS) - first) * UNIT_BYTES for first in starts]
        return FilePlaces(self.index_path, [first * UNIT_BYTES for first in starts], sizes)

    def due_columns(self) -> Iterator[tuple[int, Numbers]]:
        """Yield every unit's due_in_hour_ms, in blocks, each with the global index it begins at."""
        for start in range(0, self.units, BLOCK_UNITS):
            block = self.block(start, min(start + BLOCK_UNITS, self.units))
            yield start, np.ascontiguousarray(block["due_in_hour_ms"])

    def read(self, global_index: Numbers, gap_bytes: int, pread: Pread | None = None) -> list[bytes | None]:
        """Read records of shape (n,), in the order asked; None where one is missing or fails its checksum."""
        records, sound = self.records(self.units_at(global_index), gap_bytes, pread)
        if bool(sound.all()):
            return list(records)
        return [record if good else None for record, good in zip(records, sound.tolist(), strict=True)]

    def records(self, rows: Rows, gap_bytes: int, pread: Pread | None = None) -> tuple[list[bytes], Flags]:
        """Read units' records, in their order; flag those that have their checksum."""
        offset, inside = self._inside(rows)
        size = np.where(inside, rows["size"], 0).astype(np.int64)
        records = self._read(offset, size, gap_bytes, pread)
        return records, (checksums(records) == rows["crc32c"]) & inside & is_there(rows)

    def parts(self, rows: Rows, start: Places, bytes_max: int, gap_bytes: int) -> list[bytes]:
        """Read units' records from `start` on, shape (n,): `bytes_max` at most of each.

        They are compared with no checksum, for that is one of the whole record.
        """
        offset, inside = self._inside(rows)
        left = np.where(inside, rows["size"], 0).astype(np.int64) - start
        return self._read(offset + start, np.clip(left, 0, bytes_max), gap_bytes, None)

    def places(self, rows: Rows) -> FilePlaces:
        """Return where in the log units' records lie."""
        offset, inside = self._inside(rows)
        return FilePlaces(self.log_path, offset[inside].tolist(), rows["size"][inside].tolist())

    def _read(self, offset: Places, size: Places, gap_bytes: int, pread: Pread | None) -> list[bytes]:
        """Read places of the log, shape (n,), in their order; what is missing is left out."""
        if not bool((offset[1:] < offset[:-1]).any()):
            return self._read_runs(offset, size, gap_bytes, pread)
        order = np.argsort(offset, kind="stable")
        records = self._read_runs(offset[order], size[order], gap_bytes, pread)
        back = np.empty(len(order), np.intp)
        back[order] = np.arange(len(order))
        return list(map(records.__getitem__, back.tolist()))

    def read_one(self, global_index: int, pread: Pread | None = None) -> bytes | None:
        """Read one record, as `read` does: most of what is due is due alone."""
        self.open()
        if self.is_held:
            unit = _ONE_UNIT.unpack_from(self.index().data, global_index * UNIT_BYTES)
        else:
            unit = _ONE_UNIT.unpack(self._index_bytes([global_index * UNIT_BYTES]))
        offset, size, *_, crc, _ = unit
        if offset == 0 or offset + size > self.log_bytes:
            return None
        (record,) = self._read_singly([offset], [size], pread)
        return record if google_crc32c.value(record) == crc else None

    def _inside(self, rows: Rows) -> tuple[Places, Flags]:
        """Return offsets; flag the records that lie within the log: those of a damaged unit may not."""
        bound = np.uint64(self.log_bytes)
        offset = np.minimum(rows["offset"], bound)
        inside: Flags = (rows["offset"] <= bound) & (rows["size"] <= bound - offset)
        return offset.astype(np.int64), inside

    def _read_runs(self, offset: Places, size: Places, gap_bytes: int, pread: Pread | None) -> list[bytes]:
        """Read records by ascending offset, neighbours in one call: a sequential slice costs one."""
        self.open()
        if len(offset) <= _SINGLE_READS:
            return self._read_singly(offset.tolist(), size.tolist(), pread)
        ends = np.maximum.accumulate(offset + size)
        first = np.concatenate(([True], offset[1:] > ends[:-1] + gap_bytes))
        starts = np.flatnonzero(first)
        run_offset = offset[starts]
        run_size = ends[np.append(starts[1:], len(offset)) - 1] - run_offset
        try:
            runs = list(map(pread or os.pread, repeat(self._log_fd), run_size.tolist(), run_offset.tolist()))
        except OSError:
            return self._read_singly(offset.tolist(), size.tolist(), pread)
        if list(map(len, runs)) != run_size.tolist():
            return self._read_singly(offset.tolist(), size.tolist(), pread)
        base = np.cumsum(run_size) - run_size - run_offset
        begin = offset + base[np.cumsum(first) - 1]
        together = runs[0] if len(runs) == 1 else b"".join(runs)
        return list(map(together.__getitem__, map(slice, begin.tolist(), (begin + size).tolist())))

    def _read_singly(self, offset: list[int], size: list[int], pread: Pread | None) -> list[bytes]:
        """Read each record in a call of its own: a bad sector costs only the records on it."""
        read, records = pread or os.pread, []
        for start, length in zip(offset, size, strict=True):
            try:
                records.append(read(self._log_fd, length, start))
            except OSError:
                records.append(b"")
        return records

    def repair(self, global_index: int, record: bytes) -> bool:
        """Write a record again; False, and nothing done, where its bytes are not the record's.

        The same where the record does not begin behind the one before it: then the index is what is damaged.
        """
        units = self.index()
        unit, end = units[global_index], end_before(units, global_index)
        if global_index and not units["offset"][global_index - 1]:  # thinned out
            end = max(0, int(unit["offset"]) - self.head_bytes)
        if len(record) != unit["size"] or google_crc32c.value(record) != unit["crc32c"]:
            return False
        if unit["offset"] != end + self.head_bytes:
            return False
        self._write(self._log_fd, record, end + self.head_bytes)
        return True

    def _write(self, fd: int, data: bytes, offset: int) -> None:
        written = os.pwrite(fd, data, offset)
        if written != len(data):
            path = self.log_path if fd == self._log_fd else self.index_path
            raise OSError(f"{path}: {written} of {len(data)} bytes written at {offset}: no space left?")
