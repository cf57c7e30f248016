"""Ready queue: released messages of one topic, in release order.

Append-only segments of 32-byte units; a unit's number is its offset, for ever.

    ready/<queue>/<first offset, 16 hex digits>.ready

The last units are in memory alone until they are some dozens, or a checkpoint writes them in its thread: a
release to thousands of queues makes and opens no file for each. The journal has what they came from.

A queue with a group is that group's retry queue of the topic: same form, seen
by nobody else (the idea of RocketMQ's %RETRY% topics).
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tarry.proto.tarry_operator_pb2 import GroupPolicy, TopicSettings
from tarry.replication.state_machine.queue_checksums import (
    BLOCK_UNITS,
    UNIT_BYTES,
    QueueProof,
    Stretch,
    block_starts,
)
from tarry.replication.state_machine.release_rate import Pace
from tarry.replication.state_machine.segment_files import OpenFiles, open_segment
from tarry.wheel.cached_reads import FilePlaces, NotCached, Pread

UNIT: Final = np.dtype(
    [
        ("due_ms", "<i8"),  # when it may be delivered
        ("hour", "<u4"),  # with global_index: where the message rests
        ("global_index", "<u4"),
        ("tag_mask", "<u8"),
        ("released_after_ms", "<i4"),  # the leader's cluster time of the release, minus due_ms
        ("lane", "<u4"),  # of its ordering key; 0: none
    ]
)
assert UNIT.itemsize == UNIT_BYTES
SCAN_BYTES: Final = 1 << 20
SEGMENT_UNITS: Final = 1 << 20
TAIL_UNITS: Final = 32
"""Units in memory alone, at most: so many, and up to as many more by the queue's number. Queues that are all
appended to alike are then not all written by the same entry."""
NO_SETTINGS: Final = TopicSettings()
"""Of every topic that was given none; never changed."""
NO_SEGMENTS: Final[frozenset[int]] = frozenset()
"""Shared by the queues of which none is written, which is most of many."""
SEGMENT_NAME: Final = re.compile(r"[0-9a-f]{16}\.ready")


def segment_name(segment: int) -> str:
    """Return the name of a segment's file."""
    return f"{segment * SEGMENT_UNITS:016x}.ready"


def released_ms(units: NDArray[np.void]) -> NDArray[np.int64]:
    """Return when the units, shape (n,), were released, ms since the epoch."""
    released: NDArray[np.int64] = units["due_ms"] + units["released_after_ms"]
    return released


class FileChanges(NamedTuple):
    """Changes of a queue's files: taken on the event loop, written and synced by a thread."""

    folder: Path
    tail: bytes
    """Units that are in memory alone."""
    at: int
    """The first one's offset."""
    first: int
    """Of the queue."""
    touched: Set[int]
    """Segments that have been written."""
    obsolete: Sequence[Path]
    hole: tuple[Path, tuple[int, int]] | None
    """Part of a segment that is trimmed: to be given back, as what is obsolete is, with the file's places."""

    def write(self) -> list[Path]:
        """Write what is in memory alone; return the files to sync.

        The queue may write the same bytes to the same places meanwhile. Raises OSError.
        """
        written = set(self.touched)
        for segment, position, part in _by_segment(self.tail, self.at, self.first):
            fd = open_segment(self.folder / segment_name(segment))
            try:
                _write_all(fd, part, position)
            finally:
                os.close(fd)
            written.add(segment)
        return [self.folder / segment_name(segment) for segment in sorted(written)]


class Changes:
    """The queues that have changed, by number: each taken from here by whoever looks at it."""

    __slots__ = ("files", "parts")

    def __init__(self) -> None:
        self.parts: set[int] = set()
        """Queues of which the checkpoint's part is to be built anew."""
        self.files: set[int] = set()
        """Queues of which files are to be written and synced, or removed."""


class QueueDamaged(Exception):
    """A queue's files are not what the checkpoint says: restore the node from a peer."""


class UnitsDamaged(QueueDamaged):
    """Units of a queue do not match their checksums: a peer's copy may take their place."""

    def __init__(self, queue: int, topic: str, stretches: Sequence[Stretch]) -> None:
        where = ", ".join(f"{stretch.first} to {stretch.end - 1}" for stretch in stretches[:10])
        super().__init__(f"ready queue {queue} ({topic!r}): offsets {where} do not match their checksums")
        self.queue = queue
        self.stretches = tuple(stretches)


def scan(folder: Path, first: int, proof: QueueProof) -> Iterator[tuple[int, list[Stretch]]]:
    """Look at the files of a queue's folder from an offset on, 1 MiB at a time.

    Yield how many bytes that was, and which stretches are damaged; a file that is missing is. For a thread:
    what lies below ``proof.end``, a copy, never changes. Raises OSError.
    """
    portion = SCAN_BYTES // UNIT_BYTES
    for start in range(first - first % portion, proof.end, portion):
        stretches = list(proof.stretches(max(first, start), min(start + portion, proof.end)))
        if not stretches:
            continue
        low, end = stretches[0].first, stretches[-1].end
        segment, within = divmod(low, SEGMENT_UNITS)
        try:
            with (folder / segment_name(segment)).open("rb", buffering=0) as file:
                data = _whole(file.fileno(), (end - low) * UNIT_BYTES, within * UNIT_BYTES)
        except FileNotFoundError:
            data = b""
        yield (end - low) * UNIT_BYTES, _flawed(stretches, low, data)


def _flawed(stretches: Sequence[Stretch], low: int, data: bytes) -> list[Stretch]:
    """Return which stretches the data, from offset low on, does not hold as they were."""
    flawed = []
    for stretch in stretches:
        first, end = (stretch.first - low) * UNIT_BYTES, (stretch.end - low) * UNIT_BYTES
        if not stretch.is_proven_by(data[first:end]):
            flawed.append(stretch)
    return flawed


def _whole(fd: int, size_bytes: int, position: int, pread: Pread | None = None) -> bytes:
    """Read; where a sector cannot be read, nothing: no checksum matches that."""
    try:
        return (pread or os.pread)(fd, size_bytes, position)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return b""


class ReadyQueue:
    """One queue: ``append`` at the end, ``read`` anywhere."""

    __slots__ = (
        "_changes",
        "_files",
        "_obsolete",
        "_punched",
        "_root",
        "_tail",
        "_touched",
        "deleted",
        "first",
        "group",
        "letters",
        "misfires_dropped",
        "pace",
        "policy",
        "proof",
        "queue",
        "settings",
        "topic",
        "units",
    )

    def __init__(
        self,
        root: Path,
        queue: int,
        topic: str,
        group: str = "",
        files: OpenFiles | None = None,
        changes: Changes | None = None,
    ) -> None:
        """Take ``files``, shared with other queues so that many do not open more; ``changes`` too."""
        self.queue = queue
        self.topic = topic
        self.group = group
        self._root = root
        self._files = files or OpenFiles()
        self._changes = changes or Changes()
        self._changes.parts.add(queue)
        self._tail = b""  # the last units, in memory alone
        self._touched = NO_SEGMENTS
        self._obsolete: tuple[Path, ...] = ()
        self._punched = 0  # the offset up to which files have given their space back
        self.settings = NO_SETTINGS  # of a topic's queue
        self.policy: GroupPolicy | None = None  # of a retry queue's group; None: it sets nothing
        self.letters: tuple[int, ...] = ()  # of a retry queue's group: other queues its dead letters went to
        self.pace = Pace()
        self.misfires_dropped = 0
        self.deleted = False  # its number is taken for ever; nothing goes in any more
        self.first = 0  # offsets below have been trimmed
        self.units = 0
        self.proof = QueueProof()

    @property
    def folder(self) -> Path:
        """Folder of its files, if it has any."""
        return self._root / str(self.queue)

    def append(self, units: NDArray[np.void]) -> int:
        """Append units (shape (n,), dtype UNIT) and return the offset of the first."""
        first = self.units
        data = units.tobytes()
        self.proof.extend(data)
        self.units += len(units)
        self._tail += data
        self._note()
        if len(self._tail) > (TAIL_UNITS + self.queue % TAIL_UNITS) * UNIT_BYTES:
            self.flush()
        return first

    def flush(self) -> None:
        """Write to the files what is in memory alone. Raises OSError."""
        for segment, position, part in _by_segment(self._tail, self._written, self.first):
            _write_all(self._fd(segment), part, position)
            self._touched |= {segment}
            self._note()
        self._tail = b""

    @property
    def _written(self) -> int:
        """The offset up to which the files have been written."""
        return self.units - len(self._tail) // UNIT_BYTES

    def shape(self, settings: TopicSettings, now_ms: int) -> None:
        """Go on with other settings."""
        self.settings = settings
        rates = settings.release_per_s_max, settings.catch_up_per_s_max
        self.pace.change(*rates, self.units, now_ms)
        self._note()

    def set_policy(self, policy: GroupPolicy | None) -> None:
        """Keep another policy of the group of this retry queue."""
        self.policy = policy
        self._note()

    def set_letters(self, queues: tuple[int, ...]) -> None:
        """Keep the numbers of the queues that dead letters of this retry queue's group went to."""
        self.letters = queues
        self._note()

    def take_in(self, first_due_ms: int, now_ms: int, catching_up: int) -> None:
        """Keep the topic's pace: units are about to be appended, the first of which catch up."""
        self.pace.take_in(self.units, first_due_ms, now_ms, catching_up)
        self._note()

    def drop_misfired(self, count: int) -> None:
        """Count messages that came too late and were dropped."""
        self.misfires_dropped += count
        self._note()

    def _note(self) -> None:
        self._changes.parts.add(self.queue)
        self._changes.files.add(self.queue)

    def read(self, offset: int, count: int, pread: Pread | None = None) -> NDArray[np.void]:
        """Return up to count units from offset on, fewer at the end; each block of them is proven.

        Raises UnitsDamaged; QueueDamaged where a file has become too short; with `pread_cached` NotCached.
        """
        end = min(offset + count, self.units)
        if offset >= end:
            return np.empty(0, dtype=UNIT)
        if self.deleted:  # to read its files would make them anew
            raise UnitsDamaged(self.queue, self.topic, [])
        stretches = list(self.proof.stretches(offset, end))
        low = min(offset, stretches[0].first) if stretches else offset
        data = self._bytes(low, max(end, stretches[-1].end) if stretches else end, pread)
        damaged = _flawed(stretches, low, data)
        if damaged:
            raise UnitsDamaged(self.queue, self.topic, damaged)
        skipped = (offset - low) * UNIT_BYTES
        if len(data) < skipped + (end - offset) * UNIT_BYTES:
            raise QueueDamaged(f"{self.folder}: a file is too short for offsets {offset} to {end - 1}")
        return np.frombuffer(data, dtype=UNIT, count=end - offset, offset=skipped)

    def _bytes(self, first: int, end: int, pread: Pread | None = None) -> bytes:
        """Return what the files hold of the offsets first to end, and behind it what is in memory alone."""
        parts, written = [], self._written
        if end > written:
            begin = max(0, first - written)
            parts.append(self._tail[begin * UNIT_BYTES : (end - written) * UNIT_BYTES])
            if begin == 0 and first < written:
                files = self._read_files(first, written, pread)
                parts.insert(0, files.ljust((written - first) * UNIT_BYTES, b"\0"))
            return b"".join(parts)
        return self._read_files(first, end, pread)

    def _read_files(self, first: int, end: int, pread: Pread | None) -> bytes:
        parts = []
        while first < end:
            segment, start = divmod(first, SEGMENT_UNITS)
            here = min(end - first, SEGMENT_UNITS - start)
            place, size = start * UNIT_BYTES, here * UNIT_BYTES
            try:
                part = _whole(self._fd(segment), size, place, pread)
            except NotCached:
                raise NotCached([FilePlaces(self._path(segment), [place], [size])]) from None
            parts.append(part.ljust(here * UNIT_BYTES, b"\0") if first + here < end else part)
            first += here
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def at(self, offsets: NDArray[np.uint64]) -> NDArray[np.void]:
        """Return the units at the given offsets, which must be below ``units``. Raises as ``read``."""
        if len(offsets) == 0:
            return np.empty(0, dtype=UNIT)
        low, high = int(offsets.min()), int(offsets.max())
        if high - low < max(4 * len(offsets) + 64, min(64 * len(offsets), 65_536)):
            return self.read(low, high - low + 1)[(offsets - np.uint64(low)).astype(np.intp)]
        units = np.empty(len(offsets), dtype=UNIT)
        order = np.argsort(offsets, kind="stable")
        blocks = np.split(order, block_starts(offsets[order])[1:])
        for rows in blocks:  # each is read once, for it is proven whole
            low, high = int(offsets[rows[0]]), int(offsets[rows[-1]])
            units[rows] = self.read(low, high - low + 1)[(offsets[rows] - np.uint64(low)).astype(np.intp)]
        return units

    def mend(self, stretch: Stretch, units: bytes) -> bool:
        """Write damaged units again; False, and nothing done, where these are not they. Raises OSError."""
        if not stretch.is_proven_by(units):
            return False
        self.flush()  # part of the stretch may be in memory alone, and files have no gaps
        segment, start = divmod(stretch.first, SEGMENT_UNITS)
        _write_all(self._fd(segment), memoryview(units), start * UNIT_BYTES)
        self._touched |= {segment}
        self._note()
        return True

    def is_damaged(self, stretch: Stretch) -> bool:
        """Return whether the stretch, which is still wanted, is not what it was. Raises OSError.

        What was trimmed is wanted as long as the queue goes on in its block, which is proven whole.
        """
        if self.deleted or stretch.end <= self.proof.base:
            return False
        self.flush()  # what memory has of it a checkpoint may have written, and the file may have lost since
        return not stretch.is_proven_by(self._bytes(stretch.first, stretch.end))

    def read_kept(self, first: int, end: int, pread: Pread | None = None) -> NDArray[np.void]:
        """Return the units from first to end that are not trimmed: of a deleted queue, none. As `read`."""
        first = max(first, self.first)
        return self.read(first, end - first, pread)

    def find_released(self, time_ms: int, pread: Pread | None = None) -> int:
        """Return the first offset released at time_ms or later; ``units`` where none is. Raises as `read`."""
        low, high = self.first, self.units
        while low < high:
            middle = (low + high) // 2
            if int(released_ms(self.read(middle, 1, pread))[0]) < time_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def trim(self, offset: int) -> None:
        """Forget what is below the offset: whole segments become obsolete, the rest is no longer read."""
        before, self.first = self.first, max(self.first, min(offset, self.units))
        trimmed = range(before // SEGMENT_UNITS, self.first // SEGMENT_UNITS)
        for segment in trimmed:
            self._files.close(self.queue, segment)
        self._touched -= set(trimmed)
        self._obsolete += tuple(map(self._path, trimmed))
        self.proof.forget(self.first)
        self._note()

    def take_changes(self) -> FileChanges:
        """Return what has become of the files since the last call."""
        changes = self.folder, self._tail, self._written, self.first, self._touched, self._obsolete
        self._touched, self._obsolete = NO_SEGMENTS, ()
        return FileChanges(*changes, self._take_hole())

    def _take_hole(self) -> tuple[Path, tuple[int, int]] | None:
        """Return what has been trimmed of the segment in which the queue goes on, but for its own block."""
        end = self.first - self.first % BLOCK_UNITS
        segment, within = divmod(end, SEGMENT_UNITS)
        begin = max(self._punched, end - within)
        if self.deleted or begin == end:
            return None
        self._punched = end
        return self._path(segment), ((begin % SEGMENT_UNITS) * UNIT_BYTES, within * UNIT_BYTES)

    def recover(self, first: int, proof: QueueProof, *, deleted: bool = False) -> None:
        """Cut the files back to the end of what a checkpoint proves; a deleted queue's are not looked at.

        Raises:
            QueueDamaged: the files hold less than the checkpoint says.
        """
        self.first, self.units, self.proof = first, proof.end, proof
        self._tail, self._punched = b"", 0
        self.close()
        if deleted:
            self.delete()  # what a crash left of it goes with the next checkpoint
            return
        last, rest = divmod(proof.end, SEGMENT_UNITS)
        for path in self.folder.glob("*"):
            if SEGMENT_NAME.fullmatch(path.name) is None:
                continue
            segment = int(path.name[:16], 16) // SEGMENT_UNITS
            if (segment + 1) * SEGMENT_UNITS <= first:
                path.unlink()
                continue
            wanted = SEGMENT_UNITS if segment < last else rest if segment == last else 0
            size = path.stat().st_size
            if size < wanted * UNIT_BYTES:
                raise QueueDamaged(f"{path}: {size} bytes, checkpoint says {wanted * UNIT_BYTES}")
            os.truncate(path, wanted * UNIT_BYTES)
        newest = self._path((proof.end - 1) // SEGMENT_UNITS)
        if proof.end > first and not newest.exists():
            raise QueueDamaged(f"{newest} is missing")

    def files(self, first: int, units: int) -> list[tuple[Path, int]]:
        """Return (file, bytes in use) of every segment that proves a queue's offsets first to units.

        The block in which the queue goes on is proven whole, also where all of it has been trimmed.
        """
        begin = first - first % BLOCK_UNITS
        segments = range(begin // SEGMENT_UNITS, -(-units // SEGMENT_UNITS)) if begin < units else ()
        return [(self._path(s), min(SEGMENT_UNITS, units - s * SEGMENT_UNITS) * UNIT_BYTES) for s in segments]

    def delete(self) -> None:
        """Close the files: the whole folder is obsolete, and nothing goes in any more."""
        self.close()
        self.deleted = True
        self.policy = None
        self.letters = ()
        self.first = self.units
        self.proof.forget(self.first)
        self._tail = b""
        self._touched = NO_SEGMENTS
        self._obsolete = (self.folder,)
        self._note()

    def close(self) -> None:
        """Close the files."""
        self._files.close(self.queue)

    def _path(self, segment: int) -> Path:
        return self.folder / segment_name(segment)

    def _fd(self, segment: int) -> int:
        return self._files.fd(self.queue, segment, self._path)


def _by_segment(tail: bytes, at: int, first: int) -> Iterator[tuple[int, int, memoryview]]:
    """Yield (segment, position, bytes) of units from an offset on; none of segments below the first unit."""
    left = memoryview(tail)
    while left:
        segment, start = divmod(at, SEGMENT_UNITS)
        count = min(len(left) // UNIT_BYTES, SEGMENT_UNITS - start)
        if segment >= first // SEGMENT_UNITS:
            yield segment, start * UNIT_BYTES, left[: count * UNIT_BYTES]
        left = left[count * UNIT_BYTES :]
        at += count


def _write_all(fd: int, data: memoryview, position: int) -> None:
    while data:
        written = os.pwrite(fd, data, position)
        data = data[written:]
        position += written
