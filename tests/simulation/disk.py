"""A disk that keeps what was synced, and of the rest whatever a crash leaves."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tarry.replication.journal import wal_frames
from tarry.replication.journal.power_loss import MARK, PowerLost, is_lost
from tarry.replication.journal.records import Batch, JournalDamaged
from tarry.replication.journal.wal_frames import HEADER_BYTES, SECTOR_BYTES
from tarry.replication.journal.write_ahead_log import WriteAheadLog
from tarry.wheel import durability

SEGMENT_BYTES: Final = 32 << 10
Files = dict[str, bytes]


class DiskFailed(OSError):
    """Injected. The process ends, as it would on EIO."""


class SimDisk:
    """A journal's write-ahead log on real files, which outlives its node's starts."""

    syncs = True
    """False: writes are forgotten by a crash, as without fsync."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._temporary = tempfile.TemporaryDirectory(prefix="tarry-disk-")
        self._folder = Path(self._temporary.name)
        self.fails = False
        self.room_bytes: int | None = None
        self._before: Files | None = None
        self._boots = 1
        self._flushed: Files | None = None  # as a loss of power would leave them; None: as they are
        self.lost_power = False
        """It had entries that were not flushed when its machine lost its power; what is left can be read."""
        self._open()

    def read_head(self) -> bytes | None:
        return self._log.read_head()

    def read(self, index: int) -> bytes | None:
        return self._log.read(index)

    def scan(self, first: int) -> Iterator[tuple[int, bytes]]:
        return self._log.scan(first)

    def first_within(self, size_bytes: int) -> int:
        return self._log.first_within(size_bytes)

    def is_long(self, batch: Batch) -> bool:
        return self._log.is_long(batch)

    def needs_upkeep(self) -> bool:
        return self._log.needs_upkeep()

    def upkeep(self) -> None:
        with unsynced():
            self._log.upkeep()

    @property
    def may_defer(self) -> bool:
        return self._log.may_defer

    @property
    def is_marked(self) -> bool:
        return self._log.is_marked

    def flush(self) -> None:
        with unsynced():
            self._log.flush()
        self._note_sync()

    def settle(self) -> None:
        with unsynced():
            self._log.settle()
        self._note_sync()

    def write(self, batch: Batch) -> None:
        if self.fails:
            self._leave_something(batch)
            raise DiskFailed("EIO")
        if self.room_bytes is not None:
            self.room_bytes -= sum(len(value) for _, value in batch.puts)
            if self.room_bytes < 0:
                raise DiskFailed("ENOSPC")
        if not self.syncs and self._before is None:
            self._before = self._files()
        before = self._files() if batch.deferred and self._flushed is None else self._flushed
        with unsynced():
            self._log.write(batch)
        self._flushed = before
        self._note_sync()

    def _note_sync(self) -> None:
        """Note what a loss of power would leave now: the mark is there before the first deferred frame."""
        if self._log._deferred <= self._log._synced:
            self._flushed = None
        elif self._flushed is not None:
            self._flushed[MARK] = (self._folder / MARK).read_bytes()

    @property
    def is_at_risk(self) -> bool:
        """Whether a loss of power may take something back, or is taken for one that does."""
        return self._log.is_marked or self._flushed is not None

    def close(self) -> None: ...

    def kill(self, under_way: Batch | None) -> None:
        """The process is killed while `under_way` is being written: what it has written stays."""
        if under_way is not None and self._rng.random() < 0.5:
            with unsynced():
                self._log.write(under_way)
        self._replace(self._files())
        self._flushed = None

    def crash(self, under_way: Batch | None) -> None:
        """Power is lost while `under_way` is being written."""
        self._boots += 1
        if self._flushed is not None:
            self._lose_unflushed(under_way)
            return
        if self._before is not None:
            self._replace(self._before)
            self._before = None
        if under_way is not None:
            self._tear(under_way)
        else:
            self._replace(self._files())

    def reopen(self) -> None:
        """As the next process does."""
        self._replace(self._files())

    def _lose_unflushed(self, under_way: Batch | None) -> None:
        """Of what was written since the last flush any sectors are gone."""
        flushed, self._flushed = self._flushed, None
        assert flushed is not None
        if under_way is not None:
            with unsynced():
                self._log.write(under_way)
        self._replace(torn(flushed, self._files(), self._rng))

    def turn_bit(self) -> str:
        """Turn a bit anywhere before the last frame; return where."""
        *before_last, _ = _proven(self._files())
        name, begin, end = self._rng.choice(before_last)
        at = self._rng.randrange(begin, end)
        data = bytearray((self._folder / name).read_bytes())
        data[at] ^= 1 << self._rng.randrange(8)
        (self._folder / name).write_bytes(data)
        return f"{name} at {at}"

    def is_refused(self) -> bool:
        """Whether the log, as it is on the disk now, is found to be damaged, or to be of another start."""
        try:
            with unsynced():
                boot = f"boot {self._boots}"
                WriteAheadLog(self._folder, segment_bytes=SEGMENT_BYTES, boot=boot).close()
        except (JournalDamaged, PowerLost):
            return True
        return False

    def _tear(self, batch: Batch) -> None:
        synced = self._files()
        with unsynced():
            self._log.write(batch)
        self._replace(torn(synced, self._files(), self._rng))

    def _leave_something(self, batch: Batch) -> None:
        """A sync that failed: of what was to be synced nothing is on the disk, or some, or all."""
        whole = self._rng.random()
        if whole < 0.3:
            with unsynced():
                self._log.write(batch)
        elif whole < 0.6:
            self._tear(batch)

    def _files(self) -> Files:
        return {path.name: path.read_bytes() for path in sorted(self._folder.iterdir())}

    def _replace(self, files: Files) -> None:
        self._log.close()
        for path in self._folder.iterdir():
            path.unlink()
        for name, data in files.items():
            (self._folder / name).write_bytes(data)
        self._open()

    def _open(self) -> None:
        boot = f"boot {self._boots}"
        self.lost_power = is_lost(self._folder, boot)
        with unsynced():
            self._log = WriteAheadLog(
                self._folder, segment_bytes=SEGMENT_BYTES, boot=boot, cut=self.lost_power
            )


def _proven(files: Files) -> list[tuple[str, int, int]]:
    """Return what has a checksum, in the order of writing: segments' headers and frames, begin and end."""
    spans = []
    segments = {name: data for name, data in files.items() if name.endswith(".wal")}
    headers = [wal_frames.decode_segment(data, len(data)) for data in segments.values()]
    ends = [*(header.sequence for header in headers[1:]), None]
    for (name, data), header, end in zip(segments.items(), headers, ends, strict=True):
        spans.append((name, 0, HEADER_BYTES))
        begin = HEADER_BYTES
        for frame in wal_frames.frames(data, header, end):
            spans.append((name, begin, begin + HEADER_BYTES + frame.fields.body_bytes))
            begin = frame.end
    return spans


@contextmanager
def unsynced() -> Iterator[None]:
    """What is written need not reach the disk: what a power loss leaves is played."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda fd: None)
        patched.setattr(os, "fdatasync", lambda fd: None)
        if durability._syncfs is not None:
            patched.setattr(durability, "_syncfs", lambda fd: 0)
        yield


def torn(synced: Mapping[str, bytes], written: Mapping[str, bytes], rng: random.Random) -> Files:
    """Return files of which some sectors are as synced, and some as written after it."""
    left = dict(synced)  # a segment is removed after the sync
    for name, data in written.items():
        before = synced.get(name)
        if before is None:  # it is synced before it has its name
            left.update({name: data} if rng.random() < 0.5 else {})
        elif before != data:
            left[name] = b"".join(
                rng.choice((before, data))[at : at + SECTOR_BYTES] for at in range(0, len(data), SECTOR_BYTES)
            )
    return left
