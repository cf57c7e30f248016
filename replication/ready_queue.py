"""Ready queue: released messages of one topic, in release order.

Append-only segments of 32-byte units; a unit's number is its offset, for ever.

    ready/<queue>/<first offset, 16 hex digits>.ready

A queue with a group is that group's retry queue of the topic: same form, seen
by nobody else (the idea of RocketMQ's %RETRY% topics).
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tarry.proto.tarry_operator_pb2 import TopicSettings
from tarry.replication.open_files import OpenFiles
from tarry.replication.pace import Pace
from tarry.replication.queue_proof import BLOCK_UNITS, UNIT_BYTES, QueueProof, Stretch

UNIT: Final = np.dtype(
    [
        ("due_ms", "<i8"),  # when it may be handed over
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
SEGMENT_NAME: Final = re.compile(r"[0-9a-f]{16}\.ready")


@dataclass(frozen=True, slots=True)
class QueueState:
    """What a checkpoint holds of a queue."""

    first: int
    units: int
    proof: QueueProof


def segment_name(segment: int) -> str:
    """Return the name of a segment's file."""
    return f"{segment * SEGMENT_UNITS:016x}.ready"


def released_ms(units: NDArray[np.void]) -> NDArray[np.int64]:
    """Return when the units, shape (n,), were released, ms since the epoch."""
    released: NDArray[np.int64] = units["due_ms"] + units["released_after_ms"]
    return released


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


def _whole(fd: int, size_bytes: int, position: int) -> bytes:
    """Read; where a sector cannot be read, nothing: no checksum matches that."""
    try:
        return os.pread(fd, size_bytes, position)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return b""


class ReadyQueue:
    """One queue: ``append`` at the end, ``read`` anywhere."""

    def __init__(
        self, folder: Path, queue: int, topic: str, group: str = "", files: OpenFiles | None = None
    ) -> None:
        """``files``: shared with other queues, so that many of them do not open more."""
        self.queue = queue
        self.topic = topic
        self.group = group
        self.folder = folder / str(queue)
        self._files = files or OpenFiles()
        self._touched: set[int] = set()
        self._obsolete: list[Path] = []
        self.settings = TopicSettings()  # of a topic's queue
        self.pace = Pace()
        self.misfires_dropped = 0
        self.deleted = False  # its number is taken for ever; nothing goes in any more
        self.first = 0  # offsets below have been trimmed
        self.units = 0
        self.proof = QueueProof()
        self.captured: tuple[object, bytes, bytes] | None = (
            None  # its parts of the last checkpoint, and what of
        )

    def append(self, units: NDArray[np.void]) -> int:
        """Append units (shape (n,), dtype UNIT) and return the offset of the first."""
        first = self.units
        data = units.tobytes()
        self.proof.extend(data)
        done = 0
        while done < len(units):
            segment, start = divmod(self.units, SEGMENT_UNITS)
            count = min(len(units) - done, SEGMENT_UNITS - start)
            part = memoryview(data)[done * UNIT_BYTES : (done + count) * UNIT_BYTES]
            _write_all(self._fd(segment), part, start * UNIT_BYTES)
            self._touched.add(segment)
            self.units += count
            done += count
        return first

    def read(self, offset: int, count: int) -> NDArray[np.void]:
        """Return up to count units from offset on, fewer at the end; each block of them is proven.

        Raises UnitsDamaged; QueueDamaged where a file has become too short.
        """
        end = min(offset + count, self.units)
        if offset >= end:
            return np.empty(0, dtype=UNIT)
        stretches = list(self.proof.stretches(offset, end))
        low = min(offset, stretches[0].first) if stretches else offset
        data = self._bytes(low, max(end, stretches[-1].end) if stretches else end)
        damaged = _flawed(stretches, low, data)
        if damaged:
            raise UnitsDamaged(self.queue, self.topic, damaged)
        skipped = (offset - low) * UNIT_BYTES
        if len(data) < skipped + (end - offset) * UNIT_BYTES:
            raise QueueDamaged(f"{self.folder}: a file is too short for offsets {offset} to {end - 1}")
        return np.frombuffer(data, dtype=UNIT, count=end - offset, offset=skipped)

    def _bytes(self, first: int, end: int) -> bytes:
        """Return what the files hold of the offsets first to end."""
        parts = []
        while first < end:
            segment, start = divmod(first, SEGMENT_UNITS)
            here = min(end - first, SEGMENT_UNITS - start)
            part = _whole(self._fd(segment), here * UNIT_BYTES, start * UNIT_BYTES)
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
        _, starts = np.unique(offsets[order] // np.uint64(BLOCK_UNITS), return_index=True)
        for rows in np.split(order, starts[1:]):  # a block is read once, for it is proven whole
            low, high = int(offsets[rows[0]]), int(offsets[rows[-1]])
            units[rows] = self.read(low, high - low + 1)[(offsets[rows] - np.uint64(low)).astype(np.intp)]
        return units

    def mend(self, stretch: Stretch, units: bytes) -> bool:
        """Write damaged units again; False, and nothing done, where these are not they. Raises OSError."""
        if not stretch.is_proven_by(units):
            return False
        segment, start = divmod(stretch.first, SEGMENT_UNITS)
        _write_all(self._fd(segment), memoryview(units), start * UNIT_BYTES)
        self._touched.add(segment)
        return True

    def is_damaged(self, stretch: Stretch) -> bool:
        """Return whether the stretch, which is still wanted, is not what it was. Raises OSError."""
        if self.deleted or stretch.end <= self.first:
            return False
        return not stretch.is_proven_by(self._bytes(stretch.first, stretch.end))

    def find_released(self, time_ms: int) -> int:
        """Return the first offset released at time_ms or later; ``units`` where none is."""
        low, high = self.first, self.units
        while low < high:
            middle = (low + high) // 2
            if int(released_ms(self.read(middle, 1))[0]) < time_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def trim(self, offset: int) -> None:
        """Forget what is below the offset: whole segments become obsolete, the rest is no longer read."""
        before, self.first = self.first, max(self.first, min(offset, self.units))
        for segment in range(before // SEGMENT_UNITS, self.first // SEGMENT_UNITS):
            self._files.close(self.queue, segment)
            self._touched.discard(segment)
            self._obsolete.append(self._path(segment))
        self.proof.forget(self.first)

    def capture(self) -> QueueState:
        """Return what a checkpoint must hold."""
        return QueueState(self.first, self.units, self.proof)

    def take_touched(self) -> list[Path]:
        """Return the files written since the last call, to be synced."""
        if not self._touched:
            return []
        touched = [self._path(segment) for segment in sorted(self._touched)]
        self._touched.clear()
        return touched

    def recover(self, state: QueueState, *, deleted: bool = False) -> None:
        """Cut the files back to the checkpoint's length; what is left of a deleted queue's is not looked at.

        Raises:
            QueueDamaged: the files hold less than the checkpoint says.
        """
        self.first, self.units, self.proof = state.first, state.units, state.proof
        self.close()
        if deleted:
            self.delete()  # what a crash left of it goes with the next checkpoint
            return
        last, rest = divmod(state.units, SEGMENT_UNITS)
        for path in self.folder.glob("*"):
            if SEGMENT_NAME.fullmatch(path.name) is None:
                continue
            segment = int(path.name[:16], 16) // SEGMENT_UNITS
            if (segment + 1) * SEGMENT_UNITS <= state.first:
                path.unlink()
                continue
            wanted = SEGMENT_UNITS if segment < last else rest if segment == last else 0
            size = path.stat().st_size
            if size < wanted * UNIT_BYTES:
                raise QueueDamaged(f"{path}: {size} bytes, checkpoint says {wanted * UNIT_BYTES}")
            os.truncate(path, wanted * UNIT_BYTES)
        if state.units > state.first:
            first = (state.units - 1) // SEGMENT_UNITS
            if not self._path(first).exists():
                raise QueueDamaged(f"{self._path(first)} is missing")

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
        self.captured = None
        self.first = self.units
        self._touched.clear()
        self._obsolete = [self.folder]

    def take_obsolete(self) -> list[Path]:
        """Return files and folders to remove once a checkpoint that does without them is durable."""
        obsolete, self._obsolete = self._obsolete, []
        return obsolete

    def close(self) -> None:
        """Close the files."""
        self._files.close(self.queue)

    def _path(self, segment: int) -> Path:
        return self.folder / segment_name(segment)

    def _fd(self, segment: int) -> int:
        return self._files.fd(self.queue, segment, self._path)


def _write_all(fd: int, data: memoryview, position: int) -> None:
    while data:
        written = os.pwrite(fd, data, position)
        data = data[written:]
        position += written
