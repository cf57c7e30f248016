"""A journal's storage in a write-ahead log: one write and one fdatasync a batch.

A frame is written to a place that has zeros, after the sync of the one before. So after a power loss only the
last frame may lack sectors, and these are zeros. A frame that fails its checks

- lacks a sector, and no frame follows: its write never ended, and the next one begins a segment;
- lacks none, or a frame follows: it had been synced, and is damaged.

A frame of a deferred batch is written without a sync, behind the mark that `power_loss` describes. Under
the same boot id all such frames are there when the log is opened, and are written and synced again; under
another one the log is not opened, unless it is to be cut at the first frame that lacks a sector. Only the
last segment has such frames: it is synced before the next one begins.

A segment gets its name once its first frame is synced. Its header says which frame was the last one before
it, so what follows that one in the segment before does not count.

The disk is relied on to write a sector whole, as by etcd (server/storage/wal, isTornEntry). Damage to the
last frame where its body has a sector of zeros by itself is taken for a write that never ended.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Final

from tarry.proto.files import make_folder, sync_path
from tarry.replication.journal import wal_frames
from tarry.replication.journal.entry_places import EntryPlaces
from tarry.replication.journal.power_loss import UNKNOWN_BOOT, PowerLost, UnflushedMark, is_lost
from tarry.replication.journal.records import Batch, JournalDamaged, JournalMisused
from tarry.replication.journal.wal_frames import HEADER_BYTES, Frame, SegmentHeader

SEGMENT_BYTES: Final = 16 << 20
"""A quarter of what is retained for slow followers."""
_UNNAMED: Final = "next.new"
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class _Segment:
    number: int
    path: Path
    fd: int
    mark: int
    size_bytes: int


class WriteAheadLog:
    """Entries by index, and the head, in segments of one folder, named by the sequence of their first frame.

    Entries may be read, one thread may write, and one may be in `upkeep`, all at the same time.

    An error of the disk is fatal: after a failed sync the kernel may have dropped what was to be written,
    and a second try would report success for what is gone (Rebello et al., ATC 2020).
    """

    def __init__(
        self,
        folder: Path,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        boot: str = UNKNOWN_BOOT,
        cut: bool = False,
    ) -> None:
        """Open the segments of a folder, which is made where it is missing.

        ``boot``: the machine's boot id; without one no batch is deferred. ``cut``: after a loss of power,
        open what is left, up to the first frame that is not whole.
        Raises JournalDamaged, PowerLost.
        """
        make_folder(folder)
        self._folder = folder
        self._lost_power = is_lost(folder, boot)
        if self._lost_power and not cut:
            raise PowerLost(f"{folder} had entries that were not flushed when the machine lost its power")
        self._mark = UnflushedMark(folder, boot)
        self._marking, self._noting = threading.Lock(), threading.Lock()
        self._deferred = self._synced = 0  # sequences of the last frames without a sync, and with
        self._segment_bytes = segment_bytes
        self._places = EntryPlaces()
        self._segments: dict[int, _Segment] = {}  # by number, the one that is written last
        self._numbers = 0
        self._head: bytes | None = None
        self._sequence, self._crc, self._end = 0, 0, 0  # of the last frame
        self._with_head = 0  # number of the segment that has it
        self._next: _Segment | None = None  # is allocated, and has no name yet
        self._allocating = threading.Lock()
        self._allocated_at = 0  # number of the last segment when it was tried ahead
        self._failed = self._flush_failed = False
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
        """Return whether a batch needs a segment that is not allocated, or the mark: both take long.

        So does a segment that a deferred batch begins: all that waits in the one before is synced first.
        """
        unmarked = batch.deferred and (not self._mark.is_set or self._marking.locked())
        return unmarked or (not self._fits(batch) and (batch.deferred or not self._has_next(batch)))

    def needs_upkeep(self) -> bool:
        """Return whether a segment is to be allocated ahead or removed."""
        return self._lacks_next() or self._has_removable()

    def upkeep(self) -> None:
        """Remove the segments that no entry needs, and allocate the next one if the last is half full."""
        with self._allocating:
            while self._has_removable():
                self._unlink_first()
            if self._lacks_next():
                self._allocated_at = self._numbers
                try:
                    self._allocate(self._segment_bytes)
                except OSError as error:  # the write that needs it will say so
                    if error.errno not in _FULL:
                        raise

    @property
    def may_defer(self) -> bool:
        return self._mark.may_be_set and not self._lost_power

    @property
    def is_marked(self) -> bool:
        return self._mark.is_set

    def write(self, batch: Batch) -> None:
        if self._failed or self._flush_failed:
            raise JournalMisused("a write after one that failed")
        self._failed = True
        if batch.deferred and self.may_defer and self._fits(batch):
            self._write_unsynced(batch)
        else:
            self._append(batch)
        self._failed = False

    def flush(self) -> None:
        """Sync what was written before.

        By a file of its own, so that an error of the disk is told to this sync and to one beside it: the
        kernel tells each open file of an error once.
        """
        if not self._segments:
            return
        sequence = self._sequence  # before the segment: one that ends meanwhile is synced by the write
        try:
            fd = os.open(self._last.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:  # as it ended it was synced, and no entry is in it any more
            return
        try:
            with self._condemned_by_failure():
                os.fdatasync(fd)
        except OSError:
            self._flush_failed = True
            raise
        finally:
            os.close(fd)
        self._note_synced(sequence)

    def settle(self) -> None:
        """Remove the mark, unless a frame waits for its sync: a loss of power then costs nothing."""
        with self._marking:
            if self._deferred <= self._synced and not self._failed and not self._flush_failed:
                self._mark.clear()

    def close(self) -> None:
        for segment in self._segments.values():
            os.close(segment.fd)
        self._segments.clear()
        self._forget_next()

    def _write_unsynced(self, batch: Batch) -> None:
        segment, at = self._last, self._end
        data, frame = wal_frames.encode_frame(batch, self._sequence + 1, self._crc, segment.mark)
        with self._marking:
            self._mark.set()  # first: a frame without it would be lost unnoticed
            self._deferred = self._sequence + 1
        _write(segment.fd, data, at)
        self._take_in(segment, at, frame)

    def _append(self, batch: Batch) -> None:
        begins = not self._fits(batch)
        if begins and self._deferred > self._synced:
            with self._condemned_by_failure():
                os.fdatasync(self._last.fd)  # of the segments only the last may lack sectors
            self._note_synced(self._sequence)
        segment, at = (self._begun(batch), HEADER_BYTES) if begins else (self._last, self._end)
        data, frame = wal_frames.encode_frame(batch, self._sequence + 1, self._crc, segment.mark)
        if begins:
            fields = SegmentHeader(
                wal_frames.VERSION, self._sequence + 1, self._crc, segment.mark, segment.size_bytes
            )
            data = wal_frames.encode_segment(fields) + data
        _write(segment.fd, data, 0 if begins else at)
        with self._condemned_by_failure():
            os.fdatasync(segment.fd)
        if begins:
            self._name(segment)
        self._take_in(segment, at, frame)
        self._note_synced(self._sequence)

    def _note_synced(self, sequence: int) -> None:
        with self._noting:  # a flush may end beside a write
            self._synced = max(self._synced, sequence)

    @contextmanager
    def _condemned_by_failure(self) -> Iterator[None]:
        """Let no later start use this log, where a sync fails that frames wait for.

        The kernel lets such pages go, and tells of it once: what it shows the next process may lack them.
        """
        try:
            yield
        except OSError:
            if self._deferred > self._synced:
                with suppress(OSError), self._marking:
                    self._mark.condemn()
            raise

    def _fits(self, batch: Batch) -> bool:
        return bool(self._segments) and self._end + _frame_bytes_max(batch) <= self._last.size_bytes

    def _has_next(self, batch: Batch) -> bool:
        segment = self._next
        return segment is not None and HEADER_BYTES + _frame_bytes_max(batch) <= segment.size_bytes

    def _lacks_next(self) -> bool:
        return (
            self._next is None
            and self._allocated_at < self._numbers
            and self._end > self._last.size_bytes // 2
        )

    def _begun(self, batch: Batch) -> _Segment:
        """Return a segment that is allocated, and gets its name after the first frame."""
        if not self._has_next(batch):
            with self._allocating:
                if not self._has_next(batch):
                    self._make_room(max(HEADER_BYTES + _frame_bytes_max(batch), self._segment_bytes))
        assert self._next is not None
        path = self._folder / f"{self._sequence + 1:016x}.wal"
        return replace(self._next, number=self._numbers + 1, path=path)

    def _make_room(self, size_bytes: int) -> None:
        try:
            self._allocate(size_bytes)
        except OSError as error:
            if error.errno not in _FULL or not self._has_removable():
                raise
            while self._has_removable():
                self._unlink_first()
            self._allocate(size_bytes)

    def _allocate(self, size_bytes: int) -> None:
        self._forget_next()
        path = self._folder / _UNNAMED
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, size_bytes)
            os.fsync(fd)
        except BaseException:
            os.close(fd)
            path.unlink()  # room on a full disk
            raise
        self._next = _Segment(0, path, fd, secrets.randbits(64), size_bytes)

    def _forget_next(self) -> None:
        if self._next is not None:
            os.close(self._next.fd)
            self._next = None

    def _name(self, segment: _Segment) -> None:
        (self._folder / _UNNAMED).rename(segment.path)
        sync_path(self._folder)
        self._segments[segment.number] = segment
        self._numbers, self._end, self._next = segment.number, HEADER_BYTES, None

    @property
    def _last(self) -> _Segment:
        return self._segments[self._numbers]

    def _open(self) -> None:
        (self._folder / _UNNAMED).unlink(missing_ok=True)
        headers = [self._open_segment(path) for path in sorted(self._folder.glob("*.wal"))]
        for segment, header, following in zip_longest(self._segments.values(), headers, headers[1:]):
            with _named(segment.path):
                self._read_segment(segment, header, following)
        for there in (self._folder, self._folder.parent):  # the process before may have ended without it
            sync_path(there)
        if not self._lost_power:
            self._mark.clear()  # all is synced: a node may write nothing for long after its start
        while self._has_removable():
            self._unlink_first()

    def _open_segment(self, path: Path) -> SegmentHeader:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            size_bytes = os.fstat(fd).st_size
            with _named(path):
                header = wal_frames.decode_segment(_read(fd, HEADER_BYTES), size_bytes)
        except BaseException:
            os.close(fd)
            raise
        self._numbers += 1
        self._segments[self._numbers] = _Segment(self._numbers, path, fd, header.mark, size_bytes)
        return header

    def _read_segment(
        self, segment: _Segment, header: SegmentHeader, following: SegmentHeader | None
    ) -> None:
        data = _read(segment.fd, segment.size_bytes)
        self._sequence, self._crc = header.sequence - 1, header.crc_before
        last = self._end = HEADER_BYTES
        for frame in wal_frames.frames(data, header, following and following.sequence):
            last = self._end
            self._take_in(segment, 0, frame)
        if following is None:
            self._end_opening(segment, data, last)
        elif (following.sequence, following.crc_before) != (self._sequence + 1, self._crc):
            raise JournalDamaged(f"the next segment does not follow frame {self._sequence}")

    def _end_opening(self, segment: _Segment, data: bytes, last: int) -> None:
        """Look at what follows the last frame, which begins at ``last``, and make that frame durable."""
        has_remains = bool(data[self._end :].rstrip(b"\0"))
        unfinished = self._lost_power or wal_frames.is_unfinished(data, self._end, segment.mark)
        if last == self._end or (has_remains and not unfinished):
            raise JournalDamaged(f"the frame after {self._sequence}: checksum")
        # The process that wrote the last frame may have ended before its sync, or by the error of it:
        # then the kernel shows bytes that are not on the disk, and would not write them by itself. Where
        # frames were deferred, any of them may be such.
        first = HEADER_BYTES if self._mark.is_set else last
        self._deferred = self._sequence if self._mark.is_set else 0
        _write(segment.fd, data[first : self._end], first)
        with self._condemned_by_failure():
            os.fdatasync(segment.fd)
        self._note_synced(self._sequence)
        if has_remains:
            self._end = segment.size_bytes  # zeros over them would be relied on, whatever their sync did

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
        first = min(self._segments, default=self._with_head)  # one step, while a segment may be added
        return first < (self._places.first_segment() or self._with_head)

    def _unlink_first(self) -> None:
        segment = self._segments.pop(min(self._segments))
        segment.path.unlink()
        os.close(segment.fd)
        sync_path(self._folder)  # so that none stays of which a later one is gone


def _frame_bytes_max(batch: Batch) -> int:
    return sum(4 + len(value) for _, value in batch.puts) + len(batch.head) + 2 * HEADER_BYTES


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except JournalDamaged as error:
        raise JournalDamaged(f"{path.name}: {error}") from error


def _read(fd: int, size_bytes: int) -> bytes:
    """Return what a file begins with. Raises JournalDamaged where the disk cannot read it."""
    data = b""
    try:
        while part := os.pread(fd, size_bytes - len(data), len(data)):  # one call, up to 2 GiB
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
