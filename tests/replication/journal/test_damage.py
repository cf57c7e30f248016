"""What was not written as it is read is refused, or cut where it never counted."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import pytest

from tarry.replication.journal.journal import Journal
from tarry.replication.journal.lmdb_storage import LmdbStorage
from tarry.replication.journal.records import JournalDamaged
from tests.replication.journals import fill, sync
from tests.simulation.disk import SimDisk

Open = Callable[..., Journal]
PAGE_BYTES = 4096


@pytest.fixture
def open_journal(tmp_path: Path) -> Open:
    def open_(**numbers: int) -> Journal:
        return Journal(LmdbStorage(tmp_path / "journal", map_bytes=1 << 20), incarnation=7, **numbers)

    return open_


def test_a_flipped_bit_anywhere_in_an_entry_is_refused_at_the_start(
    tmp_path: Path, open_journal: Open
) -> None:
    journal = open_journal()
    fill(journal, 5)
    sync(journal)
    journal.close()
    with lmdb.open(str(tmp_path / "journal"), max_dbs=2) as env:
        entries = env.open_db(b"entries")
        with env.begin(write=True, db=entries) as txn:
            key = (3).to_bytes(8, "big")
            value = bytearray(txn.get(key) or b"")
            value[-1] ^= 1
            txn.put(key, bytes(value))
    with pytest.raises(JournalDamaged, match="entry 3"):
        open_journal()


def test_an_entry_that_rots_after_the_start_is_refused_when_it_is_read() -> None:
    disk = SimDisk(random.Random(1))
    journal = Journal(disk, incarnation=7, tail_entries_max=2)
    fill(journal, 9)
    sync(journal)
    disk.records[3] = disk.records[3][:-1] + b"?"
    with pytest.raises(JournalDamaged, match="entry 3: checksum"):
        journal.entry(3)


def test_a_flipped_bit_of_term_or_vote_is_refused_at_the_start() -> None:
    disk = SimDisk(random.Random(1))
    journal = Journal(disk, incarnation=7)
    journal.set_term(3, "n3")
    sync(journal)
    assert disk.head is not None
    disk.head = disk.head.replace(b"n3", b"n2")
    with pytest.raises(JournalDamaged, match="head"):
        Journal(disk, incarnation=7)


def test_an_entry_of_another_log_is_refused_at_the_start() -> None:
    disks = [SimDisk(random.Random(1)) for _ in range(2)]
    for number, disk in enumerate(disks):
        journal = Journal(disk, incarnation=7)
        for index in range(1, 6):
            journal.append(b"\0%d of log %d" % (index, number), index, 1)
        sync(journal)
    disks[0].records[3] = disks[1].records[3]  # whole in itself
    with pytest.raises(JournalDamaged, match="entry 3"):
        Journal(disks[0], incarnation=7)


@pytest.mark.parametrize("missing", [1, 3, 5])
def test_a_missing_entry_is_refused_at_the_start(tmp_path: Path, open_journal: Open, missing: int) -> None:
    journal = open_journal()
    fill(journal, 5)
    sync(journal)
    journal.close()
    with lmdb.open(str(tmp_path / "journal"), max_dbs=2) as env:
        entries = env.open_db(b"entries")
        with env.begin(write=True, db=entries) as txn:
            txn.delete(missing.to_bytes(8, "big"))
    with pytest.raises(JournalDamaged):
        open_journal()


def test_entries_beyond_the_head_are_of_a_write_that_never_ended_and_are_cut(
    tmp_path: Path, open_journal: Open
) -> None:
    journal = open_journal()
    fill(journal, 5)
    sync(journal)
    journal.close()
    with lmdb.open(str(tmp_path / "journal"), max_dbs=2) as env:
        entries = env.open_db(b"entries")
        with env.begin(write=True, db=entries) as txn:
            txn.put((6).to_bytes(8, "big"), b"half an entry")
    journal = open_journal()
    assert journal.last_index == 5
    fill(journal, 6)
    sync(journal)
    journal.close()
    assert open_journal().entry(6) == (b"\0entry 6", 6, 1)


def damaged_pages(folder: Path, data: bytes) -> Iterator[Path]:
    for start in range(0, len(data), PAGE_BYTES):
        copy = folder / f"zeros at {start}"
        copy.mkdir()
        (copy / "data.mdb").write_bytes(data[:start] + bytes(PAGE_BYTES) + data[start + PAGE_BYTES :])
        yield copy
    for end in range(PAGE_BYTES, len(data), PAGE_BYTES):
        copy = folder / f"cut at {end}"
        copy.mkdir()
        (copy / "data.mdb").write_bytes(data[:end])
        yield copy


def test_no_lost_page_is_read_over_or_ends_the_process(tmp_path: Path, open_journal: Open) -> None:
    journal = open_journal()
    for index in range(1, 61):
        journal.append(b"\0" + bytes([index]) * 37 * index, index, 1)
    sync(journal)
    journal.close()
    refused = 0
    for copy in damaged_pages(tmp_path, (tmp_path / "journal" / "data.mdb").read_bytes()):
        try:
            opened = Journal(LmdbStorage(copy, map_bytes=1 << 20), incarnation=7)
        except JournalDamaged:
            refused += 1
        else:
            assert opened.last_index == 60  # the page was not in use
            opened.close()
    assert refused > 20
