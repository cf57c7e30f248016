"""What a power loss leaves of the write-ahead log is its batches up to some one; damage is refused."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.replication.journal.journal import Journal
from tarry.replication.journal.records import Batch, JournalDamaged, JournalMisused
from tarry.replication.journal.wal_frames import HEADER_BYTES, SECTOR_BYTES
from tarry.replication.journal.write_ahead_log import WriteAheadLog
from tests.replication.journals import failing_at
from tests.simulation.disk import torn, unsynced

SEGMENT_BYTES = 16 << 10


def opened(folder: Path, segment_bytes: int = SEGMENT_BYTES) -> WriteAheadLog:
    return WriteAheadLog(folder, segment_bytes=segment_bytes)


def put(first: int, *values: bytes, delete_from: int | None = None, delete_below: int | None = None) -> Batch:
    return Batch(delete_from, list(enumerate(values, first)), delete_below, b"head %d" % first, 0, 0)


def content(log: WriteAheadLog) -> tuple[bytes | None, dict[int, bytes]]:
    found = {index: value for index in range(400) if (value := log.read(index)) is not None}
    assert not found or dict(log.scan(min(found))) == found
    return log.read_head(), found


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def write_files(folder: Path, contents: dict[str, bytes]) -> Path:
    folder.mkdir()
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    return folder


def without_frames(path: Path) -> None:
    """Leave of a segment what is there before its first frame is written."""
    path.write_bytes(path.read_bytes()[:HEADER_BYTES].ljust(path.stat().st_size, b"\0"))


@contextmanager
def log_in(folder: Path) -> Iterator[WriteAheadLog]:
    log = opened(folder)
    try:
        yield log
    finally:
        log.close()


def test_entries_and_head_are_there_after_another_opening(tmp_path: Path) -> None:
    with log_in(tmp_path) as log:
        log.write(put(1, b"a", b"bc"))
        log.write(Batch(None, [], None, b"head alone", 0, 0))
        expected = b"head alone", {1: b"a", 2: b"bc"}
        assert content(log) == expected
    with log_in(tmp_path) as log:
        assert content(log) == expected
        log.write(put(3, b"d"))
    with log_in(tmp_path) as log:
        assert content(log) == (b"head 3", {1: b"a", 2: b"bc", 3: b"d"})


def test_an_empty_folder_has_neither_entry_nor_head(tmp_path: Path) -> None:
    with log_in(tmp_path / "journal") as log:
        assert content(log) == (None, {})


def test_a_batch_larger_than_a_segment_has_one_of_its_own(tmp_path: Path) -> None:
    large = random.Random(1).randbytes(3 * SEGMENT_BYTES)
    with log_in(tmp_path) as log:
        for index, value in enumerate((b"a", large, b"c"), 1):
            log.write(put(index, value))
    with log_in(tmp_path) as log:
        assert content(log)[1] == {1: b"a", 2: large, 3: b"c"}


def test_segments_without_entries_of_the_log_are_removed(tmp_path: Path) -> None:
    with log_in(tmp_path) as log:
        for index in range(1, 101):
            log.write(put(index, bytes([index]) * 1_000, delete_below=max(1, index - 10)))
            if log.needs_upkeep():
                log.upkeep()
            assert not log.needs_upkeep()
        assert len(list(tmp_path.glob("*.wal"))) <= 3
    with log_in(tmp_path) as log:
        assert list(content(log)[1]) == list(range(90, 101))


def test_a_segment_is_allocated_ahead_and_named_with_its_first_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with log_in(tmp_path) as log:
        log.write(put(1, bytes(SEGMENT_BYTES // 3)))
        assert not log.needs_upkeep()
        log.write(put(2, bytes(SEGMENT_BYTES // 3)))
        assert log.is_long(put(3, bytes(SEGMENT_BYTES // 2)))
        log.upkeep()
        assert not log.is_long(put(3, bytes(SEGMENT_BYTES // 2)))
        with monkeypatch.context() as patched:
            patched.delattr(os, "posix_fallocate")
            log.write(put(3, b"c" * (SEGMENT_BYTES // 2)))
        assert log.is_long(put(4, bytes(SEGMENT_BYTES)))
        log.upkeep()
        log.write(put(4, bytes(SEGMENT_BYTES)))  # larger than the one that is there
        expected = content(log)
        assert len(list(tmp_path.iterdir())) == 3
        log.upkeep()
    with log_in(tmp_path) as log:
        assert content(log) == expected
        assert len(list(tmp_path.iterdir())) == 3


def test_a_full_disk_is_told_by_the_write_that_needs_a_segment_not_by_upkeep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int, start: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with log_in(tmp_path) as log:
        log.write(put(1, bytes(SEGMENT_BYTES // 3)))
        log.write(put(2, bytes(SEGMENT_BYTES // 3)))
        monkeypatch.setattr(os, "posix_fallocate", fail)
        log.upkeep()
        assert not log.needs_upkeep()  # once a segment
        log.write(put(3, b"fits"))
        with pytest.raises(OSError, match="no space"):
            log.write(put(4, bytes(SEGMENT_BYTES // 2)))
    assert len(list(tmp_path.iterdir())) == 1


def test_upkeep_in_a_thread_beside_writes_and_reads_takes_nothing_from_them(tmp_path: Path) -> None:
    with log_in(tmp_path) as log, ThreadPoolExecutor(1) as thread, unsynced():
        upkeep = thread.submit(log.upkeep)
        for index in range(1, 2_001):
            log.write(put(index, index.to_bytes(2, "big") * 500, delete_below=max(1, index - 20)))
            for kept in range(max(1, index - 20), index + 1):
                assert log.read(kept) == kept.to_bytes(2, "big") * 500
            if log.needs_upkeep() and upkeep.done():
                upkeep.result()
                upkeep = thread.submit(log.upkeep)
        upkeep.result()
        expected = content(log), [log.read(index) for index in range(1_980, 2_001)]
    with log_in(tmp_path) as log:
        assert (content(log), [log.read(index) for index in range(1_980, 2_001)]) == expected


Drawn = tuple[str, list[int], int]
BATCHES = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "cut", "compact", "head", "anew"]),
        st.lists(st.integers(1, 4_000), min_size=1, max_size=4),
        st.integers(0, 10),
    ),
    min_size=1,
    max_size=25,
)


def batches(drawn: list[Drawn], rng: random.Random) -> Iterator[tuple[Batch, dict[int, bytes]]]:
    """Return random batches, and the entries that are there after each."""
    entries: dict[int, bytes] = {}
    for number, (kind, sizes, step) in enumerate(drawn):
        first, last = min(entries, default=1), max(entries, default=0)
        head, delete_from, delete_below = b"head %d" % number, None, None
        if kind == "cut":
            delete_from = max(first + 1, last + 1 - step)
            entries = {index: value for index, value in entries.items() if index < delete_from}
        elif kind == "compact":
            delete_below = max(first, min(last - 1, first + step))
        elif kind == "anew":
            delete_from, entries, last = 0, {}, last + step
        puts = []
        if kind not in ("head", "compact"):
            start = max(entries, default=last) + 1
            puts = [(start + at, rng.randbytes(size)) for at, size in enumerate(sizes)]
        entries = {
            index: value for index, value in {**entries, **dict(puts)}.items() if index >= (delete_below or 0)
        }
        yield Batch(delete_from, puts, delete_below, head, 0, 0), entries


@settings(max_examples=60, deadline=None)
@given(drawn=BATCHES, seed=st.integers(0, 2**32))
def test_after_a_power_loss_the_log_is_as_before_the_last_batch_or_after_it(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[Drawn], seed: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    with unsynced():
        lose_power(folder, drawn, random.Random(seed))


def lose_power(folder: Path, drawn: list[Drawn], rng: random.Random) -> None:
    journal = folder / "journal"
    log = opened(journal)
    state: tuple[bytes | None, dict[int, bytes]] = None, {}
    for batch, entries in batches(drawn, rng):
        before, synced = state, files(journal)
        log.write(batch)
        state, written = (batch.head, entries), files(journal)
        assert content(log) == state
        if rng.random() < 0.5:
            log.upkeep()
            assert content(log) == state
        if rng.random() < 0.5:
            left = torn(synced, written, rng)
            lost = write_files(folder / f"lost {rng.random()}", left)
            opened(lost).close()
            left = torn(left, files(lost), rng)  # while it was opened, too
            lost = write_files(folder / f"lost {rng.random()}", left)
            with log_in(lost) as other:
                assert content(other) in (before, state)
                entry = max(content(other)[1], default=0) + 1
                other.write(put(entry, b"goes on"))
            with log_in(lost) as other:
                assert other.read(entry) == b"goes on"
        if rng.random() < 0.2:
            log.close()
            log = opened(journal)
            assert content(log) == state
    log.close()


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_an_error_of_any_call_takes_nothing_that_was_written(
    tmp_path_factory: pytest.TempPathFactory, error: int
) -> None:
    for number in range(90):
        folder = tmp_path_factory.mktemp("log")
        written: list[tuple[bytes | None, dict[int, bytes]]] = [(None, {})]
        fails = failing_at(number, OSError(error, "of the disk"))
        with unsynced(), suppress(OSError), fails, log_in(folder) as log:
            for index in range(1, 13):
                batch = put(index, bytes([index]) * (SEGMENT_BYTES // 3), delete_below=max(1, index - 3))
                entries = {
                    at: bytes([at]) * (SEGMENT_BYTES // 3) for at in range(max(1, index - 3), index + 1)
                }
                written.append((batch.head, entries))
                log.write(batch)
                written.pop(0)
                if log.needs_upkeep():
                    log.upkeep()
        with unsynced(), log_in(folder) as log:
            assert content(log) in written
            entry = max(content(log)[1], default=0) + 1
            log.write(put(entry, b"goes on"))
        with log_in(folder) as log:
            assert log.read(entry) == b"goes on"


def test_a_flipped_bit_anywhere_in_what_is_written_is_refused(tmp_path: Path) -> None:
    rng = random.Random(3)
    with log_in(tmp_path / "whole") as log:
        for index in range(1, 11, 2):
            log.write(put(index, rng.randbytes(700), rng.randbytes(9)))
        expected, end = content(log), log._end
    [(name, data)] = files(tmp_path / "whole").items()
    refused = 0
    for at in range(0, end, 7):
        damaged = bytearray(data)
        damaged[at] ^= 1 << rng.randrange(8)
        folder = write_files(tmp_path / str(at), {name: bytes(damaged)})
        try:
            with log_in(folder) as log:
                assert content(log) == expected  # the fill of a frame, or zeros after the segment's header
        except JournalDamaged:
            refused += 1
    assert refused > 0.9 * end / 7


@pytest.mark.parametrize("gone", range(4))
def test_a_missing_segment_is_refused(tmp_path: Path, gone: int) -> None:
    with log_in(tmp_path) as log:
        for index in range(1, 61):
            log.write(put(index, bytes([index]) * 1_000))
    paths = sorted(tmp_path.iterdir())
    assert len(paths) == 5
    paths[gone].unlink()
    if gone:
        with pytest.raises(JournalDamaged, match=f"{paths[gone - 1].name}.*does not follow"):
            opened(tmp_path)
    else:
        with log_in(tmp_path) as log:
            assert log.read(1) is None  # the journal's head names its first entry


@pytest.mark.parametrize("segments", [1, 2])
def test_a_segment_without_a_frame_is_refused(tmp_path: Path, segments: int) -> None:
    """It had one when it got its name; a log of none would be one that was never written, of term 0."""
    with log_in(tmp_path) as log:
        for index in range(1, segments + 1):
            log.write(put(index, bytes(SEGMENT_BYTES - 300)))
    without_frames(max(tmp_path.iterdir()))
    with pytest.raises(JournalDamaged, match=f"{segments:x}.wal: the frame after {segments - 1}"):
        opened(tmp_path)


def test_what_is_left_of_an_unfinished_write_is_never_written_over(tmp_path: Path) -> None:
    """The kernel shows zeros that are not on the disk where the sync of them failed: frames stay away."""
    rng = random.Random(9)
    with log_in(tmp_path / "whole") as log:
        log.write(put(1, rng.randbytes(700)))
        end = log._end
        log.write(put(2, whole := rng.randbytes(3_000)))
    [(name, data)] = files(tmp_path / "whole").items()
    torn_data = data[:1_024] + bytes(SECTOR_BYTES) + data[1_024 + SECTOR_BYTES :]
    folder = write_files(tmp_path / "torn", {name: torn_data})
    for _ in range(2):
        with log_in(folder) as log:
            assert list(content(log)[1]) == [1]
    with log_in(folder) as log:
        log.write(put(2, b"another"))
        log.write(put(3, b"c"))
        expected = {1: log.read(1), 2: b"another", 3: b"c"}
        assert whole not in expected.values()
    for rest in (torn_data[end:], data[end:], bytes(len(data) - end), data[end : end + 900]):
        (folder / name).write_bytes((data[:end] + rest).ljust(len(data), b"\0"))
        with log_in(folder) as log:
            assert content(log)[1] == expected


def test_zeros_in_place_of_any_sector_before_the_last_frame_are_refused(tmp_path: Path) -> None:
    rng = random.Random(5)
    with log_in(tmp_path / "whole") as log:
        for index in range(1, 9):
            log.write(put(index, rng.randbytes(900)))
        end = log._end
    [(name, data)] = files(tmp_path / "whole").items()
    for at in range(0, end - 1_024 - SECTOR_BYTES + 1, SECTOR_BYTES):
        damaged = data[:at] + bytes(SECTOR_BYTES) + data[at + SECTOR_BYTES :]
        folder = write_files(tmp_path / str(at), {name: damaged})
        with pytest.raises(JournalDamaged):
            opened(folder)


def test_a_failed_write_is_not_taken_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "not written back")

    with log_in(tmp_path) as log:
        log.write(put(1, b"a"))
        monkeypatch.setattr(os, "fdatasync", fail)
        with pytest.raises(OSError, match="not written back"):
            log.write(put(2, b"b"))
        assert content(log) == (b"head 1", {1: b"a"})
        monkeypatch.undo()
        with pytest.raises(JournalMisused):  # its sync would succeed, whatever became of the first one
            log.write(put(2, b"b"))


def test_a_full_disk_has_no_part_of_a_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int, start: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with log_in(tmp_path) as log, monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", fail)
        with pytest.raises(OSError, match="no space"):
            log.write(put(1, b"a"))
    assert list(tmp_path.iterdir()) == []


def test_a_sector_that_cannot_be_read_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int, size: int, at: int) -> bytes:
        raise OSError(errno.EIO, "input/output error")

    with log_in(tmp_path) as log:
        log.write(put(1, b"a"))
    monkeypatch.setattr(os, "pread", fail)
    with pytest.raises(JournalDamaged, match=r"0001\.wal.*input/output error"):
        opened(tmp_path)


def test_a_file_that_is_cut_is_refused_also_where_a_frame_ends(tmp_path: Path) -> None:
    with log_in(tmp_path / "whole") as log:
        ends = []
        for index in range(1, 9):
            log.write(put(index, b"a"))
            ends.append(log._end)
    [(name, data)] = files(tmp_path / "whole").items()
    for end in (0, HEADER_BYTES - 1, HEADER_BYTES, *ends):
        with pytest.raises(JournalDamaged):
            opened(write_files(tmp_path / str(end), {name: data[:end]}))


def test_a_frame_that_lies_where_another_was_is_refused(tmp_path: Path) -> None:
    with log_in(tmp_path / "whole") as log:
        ends = []
        for number in range(4):
            log.write(Batch(None, [], None, b"head %d" % number, 0, 0))
            ends.append(log._end)
    [(name, data)] = files(tmp_path / "whole").items()
    damaged = data[: ends[1]] + data[ends[0] : ends[1]] + data[ends[2] :]
    with pytest.raises(JournalDamaged, match="frame 2 does not follow frame 2"):
        opened(write_files(tmp_path / "damaged", {name: damaged}))


def test_damage_to_a_last_frame_that_ends_in_zeros_is_refused(tmp_path: Path) -> None:
    """A part of a sector that is zeros by itself is no sector that a write lacks."""
    with log_in(tmp_path / "whole") as log:
        log.write(put(1, b"c"))
        log.write(put(2, b"a" * 150 + bytes(250)))
    [(name, data)] = files(tmp_path / "whole").items()
    at = data.index(b"aaaa")
    damaged = data[:at] + b"b" + data[at + 1 :]
    with pytest.raises(JournalDamaged):
        opened(write_files(tmp_path / "damaged", {name: damaged}))


def many_segments(folder: Path) -> WriteAheadLog:
    log = opened(folder)
    for index in range(1, 31):
        log.write(put(index, random.Random(index).randbytes(SEGMENT_BYTES // 2)))
    assert len(log._segments) == 30
    return log


def test_segments_that_no_entry_needs_go_at_the_next_opening(tmp_path: Path) -> None:
    log = many_segments(tmp_path)
    log.write(Batch(None, [], 29, b"head", 0, 0))
    log.close()
    with log_in(tmp_path) as log:
        assert sorted(content(log)[1]) == [29, 30]
    assert len(list(tmp_path.glob("*.wal"))) == 2


def test_segments_that_no_entry_needs_make_room_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def allocate(fd: int, start: int, size_bytes: int) -> None:
        if len(list(tmp_path.glob("*.wal"))) >= 10:
            raise OSError(errno.ENOSPC, "no space left on device")

    log = many_segments(tmp_path)
    log.write(Batch(None, [], 29, b"head", 0, 0))
    monkeypatch.setattr(os, "posix_fallocate", allocate)
    log.write(put(31, random.Random(31).randbytes(SEGMENT_BYTES // 2)))
    assert sorted(content(log)[1]) == [29, 30, 31]
    log.close()


def test_what_is_retained_is_bounded_by_what_the_log_takes_on_the_disk(tmp_path: Path) -> None:
    """An entry of a byte takes 200 with its frame, and a head of a cluster more."""
    journal = Journal(opened(tmp_path), incarnation=1)
    for index in range(1, 1_001):
        journal.append(b"\0", index, 1)
        batch = journal.stage()
        assert batch is not None
        journal.write(batch)
        journal.mark_durable(batch)
    kept = journal.last_index - journal.start_retaining(journal.last_index, 4 * SEGMENT_BYTES)
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert 0 < kept / 1_000 * sum(sizes) <= 6 * SEGMENT_BYTES
    assert journal.start_retaining(5, 4 * SEGMENT_BYTES) <= 5
    journal.close()
