"""Reads that do not wait for the disk, on files that the system has really dropped from memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tarry.wheel import cached_reads
from tarry.wheel.cached_reads import FilePlaces, NotCached, pread_cached, read_ahead
from tarry.wheel.state import HOUR_MS, WheelSettings
from tarry.wheel.wheel import Wheel
from tests.wheel.sorted_list import START_MS, append, ids

SIZE = 4 << 20
BODY = bytes(range(256)) * (SIZE >> 8)
TRIES = 20
"""A read that fails has the system fetch what is around the place: a quick disk may win some tries."""


def drop(path: Path) -> None:
    """Drop a file from the page cache."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def is_refused(read: Callable[[], object], *dropped: Path) -> bool:
    """Whether a read of files that were just dropped does not wait for the disk."""
    for _ in range(TRIES):
        for path in dropped:
            drop(path)
        try:
            read()
        except NotCached:
            return True
    return False


def read(path: Path, size_bytes: int, start: int) -> bytes:
    with path.open("rb", buffering=0) as file:
        return pread_cached(file.fileno(), size_bytes, start)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder whose files the system drops from memory: a temporary one, else one beside this file."""
    for parent in (tmp_path, Path(__file__).parent):
        with tempfile.TemporaryDirectory(dir=parent) as folder:
            probe = Path(folder) / "probe"
            probe.write_bytes(b"a")
            if is_refused(lambda probe=probe: read(probe, 1, 0), probe):  # type: ignore[misc]
                yield Path(folder)
                return
    pytest.skip("no file system here drops files from memory and knows RWF_NOWAIT")


@pytest.fixture
def file(disk: Path) -> Path:
    path = disk / "file"
    path.write_bytes(BODY)
    return path


def test_what_is_on_disk_only_is_not_read_until_it_was_read_ahead(file: Path) -> None:
    for start, size in ((0, 100), (2_000_001, 1), (SIZE - 10, 10)):
        assert is_refused(lambda start=start, size=size: read(file, size, start), file)  # type: ignore[misc]
    drop(file)
    read_ahead([FilePlaces(file, [1_000_000, 3_000_000], [100, 200])])
    assert read(file, 100, 1_000_000) == BODY[1_000_000:][:100]
    assert read(file, 200, 3_000_000) == BODY[3_000_000:][:200]


def test_what_is_in_memory_in_part_is_not_read(file: Path) -> None:
    def in_part() -> bytes:
        read_ahead([FilePlaces(file, [0], [100])])
        return read(file, SIZE, 0)

    assert is_refused(in_part, file)
    read_ahead([FilePlaces(file, [0], [SIZE])])
    assert read(file, SIZE, 0) == BODY


def test_a_file_that_ends_before_is_not_taken_for_read(disk: Path) -> None:
    path = disk / "short"
    path.write_bytes(b"abc")
    assert read(path, 3, 0) == b"abc"
    with pytest.raises(NotCached):
        read(path, 4, 0)


def test_what_cannot_be_read_ahead_is_passed_over(file: Path) -> None:
    drop(file)
    read_ahead([FilePlaces(file.parent / "gone", [0], [10]), FilePlaces(file, [SIZE + 10, 0], [10, 10])])
    assert read(file, 10, 0) == BODY[:10]


@pytest.mark.parametrize("flag", [None, 1 << 30])
def test_where_the_system_cannot_tell_it_is_read_whatever_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: int | None
) -> None:
    """Python has no such flag; or the kernel, or the file system: EOPNOTSUPP."""
    path = tmp_path / "file"
    path.write_bytes(BODY)
    drop(path)
    monkeypatch.setattr(cached_reads, "_NOWAIT", flag)
    assert read(path, 100, 70_000) == BODY[70_000:][:100]


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("count", [1, 3, 60])
def test_records_that_are_on_disk_only_are_read_once_their_places_were(
    disk: Path, count: int, far: bool
) -> None:
    """In an hour's own files, and in the far log; of single messages, few and many."""
    wheel = Wheel(disk, WheelSettings())
    due = [START_MS + far * (24 + at % 16) * HOUR_MS + 7 * at for at in range(64)]
    names = append(wheel, due, [b"%d" % at + bytes(9_000) for at in range(64)])
    wheel.sync(wheel.capture())
    assert bool(wheel.upkeep.far_segments()) == far
    hour, global_index = ids(names[:count])
    backwards = np.arange(count)[::-1]
    files = [places.path for places in wheel.places(hour, global_index)]
    assert is_refused(lambda: wheel.read(hour[backwards], global_index[backwards], pread_cached), *files)
    read_ahead(wheel.places(hour[backwards], global_index[backwards]))
    assert wheel.read(hour, global_index, pread_cached) == wheel.read(hour, global_index)
