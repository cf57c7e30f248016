"""A journal's storage in a write-ahead log: one write and one fdatasync a batch.

No place of a segment gets other bytes than it has, but for zeros, and a frame is written after the sync of
the one before. So after a power loss only the last frame may lack sectors, and these are zeros. A frame that
fails its checks

- lacks a sector, and no frame follows: its write never ended, and it is cut off;
- lacks none, or a frame follows: it had been synced, and is damaged.

The disk is relied on to write a sector whole, as by etcd (server/storage/wal, isTornEntry). Damage to the
last frame where its body has a sector of zeros by itself is taken for a write that never ended.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tarry.proto.files import make_folder, sync_path
from tarry.replication.journal import wal_frames
from tarry.replication.journal.entry_places import EntryPlaces
from tarry.replication.journal.records import Batch, JournalDamaged, JournalMisused
from tarry.replication.journal.wal_frames import HEADER_BYTES, Frame, SegmentHeader

SEGMENT_BYTES: Final = 16 << 20
"""A quarter of what is retained for slow followers."""


@dataclass(frozen=True, slots=True)
class _Segment:
    number: int
    path: Path
    fd: int
    mark: int
    size_bytes: int


class WriteAheadLog:
    """Entries by index, and the head, in segments of one folder, named by the sequence of their first frame.

    An error of the disk is fatal: after a failed sync the kernel may have dropped what was to be written,
    and a second try would report success for what is gone (Rebello et al., ATC 2020).
    """

    def __init__(self, folder: Path, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Open the segments of a folder, which is made where it is missing. Raises JournalDamaged."""
        make_folder(folder)
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._places = EntryPlaces()
        self._segments: dict[int, _Segment] = {}  # by number, the one that is written last
        self._numbers = 0
        self._head: bytes | None = None
        self._sequence, self._crc, self._end = 0, 0, 0  # of the last frame
        self._with_head = 0  # number of the segment that has it
        self._failed = False
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def read_head(self) -> bytes | None:
        return self._head

    def read(self, index: int) -> bytes | None:
        place = self._places.get(index)
        if place is None:
            return None
        return os.pread(self._segments[place.segment].fd, place.size_bytes, place.start)

    def scan(self, first: int) -> Iterator[tuple[int, bytes]]:
        index = first
        while (value := self.read(index)) is not None:
            yield index, value
            index += 1

    def first_within(self, size_bytes: int) -> int:
        """Return the first entry from which on the log has no more than some bytes, or a segment."""
        return self._places.first_from(self._numbers - max(1, size_bytes // self._segment_bytes))

    def is_long(self, batch: Batch) -> bool:
        """Return whether writing a batch begins or removes a segment, which takes many times as long."""
        return not self._fits(batch) or batch.delete_below is not None or self._has_removable()

    def write(self, batch: Batch) -> None:
        if self._failed:
            raise JournalMisused("a write after one that failed")
        self._failed = True
        self._append(batch)
        self._failed = False

    def _append(self, batch: Batch) -> None:
        if not self._fits(batch):
            self._make_room(HEADER_BYTES + _frame_bytes_max(batch))
        segment, at = self._last, self._end
        data, frame = wal_frames.encode_frame(batch, self._sequence + 1, self._crc, segment.mark)
        _write(segment.fd, data, at)
        os.fdatasync(segment.fd)
        self._take_in(segment, at, frame)
        if self._has_removable():
            self._unlink_first()

    def close(self) -> None:
        for segment in self._segments.values():
            os.close(segment.fd)
        self._segments.clear()

    def _fits(self, batch: Batch) -> bool:
        return bool(self._segments) and self._end + _frame_bytes_max(batch) <= self._last.size_bytes

    def _make_room(self, size_bytes: int) -> None:
        try:
            self._begin_segment(size_bytes)
        except OSError as error:
            if error.errno != errno.ENOSPC or not self._has_removable():
                raise
            while self._has_removable():
                self._unlink_first()
            self._begin_segment(size_bytes)

    @property
    def _last(self) -> _Segment:
        return self._segments[self._numbers]

    def _open(self) -> None:
        for unnamed in self._folder.glob("*.new"):
            unnamed.unlink()
        paths = sorted(self._folder.glob("*.wal"))
        for path in paths:
            try:
                self._open_segment(path, is_last=path == paths[-1])
            except JournalDamaged as error:
                raise JournalDamaged(f"{path.name}: {error}") from error
        for there in (self._folder, self._folder.parent):  # the process before may have ended without it
            sync_path(there)
        while self._has_removable():
            self._unlink_first()

    def _open_segment(self, path: Path, *, is_last: bool) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            data = _read(fd)
            header = wal_frames.decode_segment(data)
            self._numbers += 1
            segment = self._segments[self._numbers] = _Segment(
                self._numbers, path, fd, header.mark, len(data)
            )
        except BaseException:
            os.close(fd)
            raise
        if self._numbers == 1:
            self._sequence, self._crc = header.sequence - 1, header.crc_before
        if (header.sequence, header.crc_before) != (self._sequence + 1, self._crc):
            raise JournalDamaged(f"it does not follow frame {self._sequence}")
        last = self._end = HEADER_BYTES
        for frame in wal_frames.frames(data, header):
            last = self._end
            self._take_in(segment, 0, frame)
        if self._head is None and self._sequence:  # a segment is removed once a frame after it is synced
            raise JournalDamaged("the log has no frame")
        rest = data[self._end :].rstrip(b"\0")
        if rest and not (is_last and wal_frames.is_unfinished(data, self._end, header.mark)):
            raise JournalDamaged(f"the frame after {self._sequence}: checksum")
        if is_last:
            # The process that wrote the last frame may have ended before its sync, or by the error of it:
            # then the kernel shows bytes that are not on the disk, and would not write them by itself.
            _write(fd, data[last : self._end] + bytes(len(rest)), last)
            os.fdatasync(fd)

    def _begin_segment(self, size_bytes: int) -> None:
        path = self._folder / f"{self._sequence + 1:016x}.wal"
        unnamed, mark = path.with_suffix(".new"), secrets.randbits(64)
        size_bytes = max(size_bytes, self._segment_bytes)
        fd = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, size_bytes)
            header = SegmentHeader(wal_frames.VERSION, self._sequence + 1, self._crc, mark, size_bytes)
            _write(fd, wal_frames.encode_segment(header), 0)
            os.fsync(fd)
            unnamed.rename(path)
            sync_path(self._folder)
        except BaseException:
            os.close(fd)
            unnamed.unlink(missing_ok=True)  # room on a full disk
            raise
        if self._segments and self._last.path == path:  # it had no frame, and is replaced by the rename
            os.close(self._segments.pop(self._numbers).fd)
        self._numbers += 1
        self._segments[self._numbers] = _Segment(self._numbers, path, fd, mark, size_bytes)
        self._end = HEADER_BYTES

    def _take_in(self, segment: _Segment, base: int, frame: Frame) -> None:
        """Note what a frame has changed; it begins at ``base`` of what its places count from."""
        if frame.delete_from is not None:
            self._places.delete_from(frame.delete_from)
        starts = [base + start for start in frame.starts]
        if not self._places.put(frame.fields.first_index, segment.number, starts, frame.sizes):
            raise JournalDamaged(f"entry {frame.fields.first_index} leaves a gap")
        if frame.delete_below is not None:
            self._places.delete_below(frame.delete_below)
        self._head, self._with_head = frame.head, segment.number
        self._sequence, self._crc, self._end = frame.fields.sequence, frame.crc, base + frame.end

    def _has_removable(self) -> bool:
        """Return whether the oldest segment has no entry of the log, and not the last frame."""
        first = next(iter(self._segments), self._with_head)
        return first < (self._places.first_segment() or self._with_head)

    def _unlink_first(self) -> None:
        """Remove the oldest segment: one a write, for that is some milliseconds."""
        segment = self._segments.pop(next(iter(self._segments)))
        segment.path.unlink()
        os.close(segment.fd)
        sync_path(self._folder)  # so that none stays of which a later one is gone


def _frame_bytes_max(batch: Batch) -> int:
    return sum(4 + len(value) for _, value in batch.puts) + len(batch.head) + 2 * HEADER_BYTES


def _read(fd: int) -> bytes:
    """Return all of a file. Raises JournalDamaged where the disk cannot read it."""
    size, data = os.fstat(fd).st_size, b""
    try:
        while part := os.pread(fd, size - len(data), len(data)):  # one call, up to 2 GiB
            data = data + part if data else part
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise JournalDamaged(str(error)) from error
    return data


def _write(fd: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(fd, view, at)
        view, at = view[count:], at + count
