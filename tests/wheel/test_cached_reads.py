"""Reads that do not wait for the disk, on files that the system has really dropped from memory."""

from __future__ import annotations

import contextlib
import os
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


def drop(path: Path) -> None:
    """Drop a file from the page cache; to try and read a place has the system fetch what is around it."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


@pytest.fixture(autouse=True)
def drops(tmp_path: Path) -> None:
    probe = tmp_path / "probe"
    probe.write_bytes(b"a")
    drop(probe)
    with probe.open("rb", buffering=0) as file, contextlib.suppress(NotCached):
        pread_cached(file.fileno(), 1, 0)
        pytest.skip(f"the file system of {tmp_path} keeps all in memory")


@pytest.fixture
def dropped(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(BODY)
    drop(path)
    return path


def test_what_is_on_disk_only_is_not_read_until_it_was_read_ahead(dropped: Path) -> None:
    with dropped.open("rb", buffering=0) as file:
        for start, size in ((0, 100), (2_000_001, 1), (SIZE - 10, 10)):
            with pytest.raises(NotCached):
                pread_cached(file.fileno(), size, start)
        read_ahead([FilePlaces(dropped, [1_000_000, 3_000_000], [100, 200])])
        assert pread_cached(file.fileno(), 100, 1_000_000) == BODY[1_000_000:][:100]
        assert pread_cached(file.fileno(), 200, 3_000_000) == BODY[3_000_000:][:200]


def test_what_is_in_memory_in_part_is_not_read(dropped: Path) -> None:
    with dropped.open("rb", buffering=0) as file:
        read_ahead([FilePlaces(dropped, [0], [100])])
        with pytest.raises(NotCached):
            pread_cached(file.fileno(), SIZE, 0)
        read_ahead([FilePlaces(dropped, [0], [SIZE])])
        assert pread_cached(file.fileno(), SIZE, 0) == BODY


def test_a_file_that_ends_before_is_not_taken_for_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    with path.open("rb", buffering=0) as file:
        assert pread_cached(file.fileno(), 3, 0) == b"abc"
        with pytest.raises(NotCached):
            pread_cached(file.fileno(), 4, 0)


def test_what_cannot_be_read_ahead_is_passed_over(dropped: Path, tmp_path: Path) -> None:
    read_ahead([FilePlaces(tmp_path / "gone", [0], [10]), FilePlaces(dropped, [SIZE + 10, 0], [10, 10])])
    with dropped.open("rb", buffering=0) as file:
        assert pread_cached(file.fileno(), 10, 0) == BODY[:10]


@pytest.mark.parametrize("how", ["no such flag", "no such file system"])
def test_where_the_system_cannot_tell_it_is_read_whatever_it_takes(
    dropped: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "no such flag":
        monkeypatch.setattr(cached_reads, "_NOWAIT", None)
    else:
        monkeypatch.setattr(cached_reads, "_NOWAIT", 1 << 30)  # EOPNOTSUPP
    with dropped.open("rb", buffering=0) as file:
        assert pread_cached(file.fileno(), 100, 70_000) == BODY[70_000 % 256 :][:100]


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("count", [1, 3, 60])
def test_records_that_are_on_disk_only_are_read_once_their_places_were(
    tmp_path: Path, count: int, far: bool
) -> None:
    """In an hour's own files, and in the far log; of single messages, few and many."""
    wheel = Wheel(tmp_path / "wheel", WheelSettings())
    due = [START_MS + far * (24 + at % 16) * HOUR_MS + 7 * at for at in range(64)]
    names = append(wheel, due, [b"%d" % at + bytes(9_000) for at in range(64)])
    wheel.sync(wheel.capture())
    assert bool(wheel.far_segments()) == far
    hour, global_index = ids(names[:count])
    for places in wheel.places(hour, global_index):
        drop(places.path)
    backwards = np.arange(count)[::-1]
    with pytest.raises(NotCached):
        wheel.read(hour[backwards], global_index[backwards], pread_cached)
    read_ahead(wheel.places(hour[backwards], global_index[backwards]))
    assert wheel.read(hour, global_index, pread_cached) == wheel.read(hour, global_index)
