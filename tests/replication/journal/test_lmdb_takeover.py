"""A journal that is in LMDB goes on in a write-ahead log, and is refused where it is damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import lmdb
import pytest

from tarry.proto.tarry_peer_pb2 import MemberList
from tarry.replication.journal import lmdb_takeover
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.lmdb_takeover import open_log
from tarry.replication.journal.records import JournalDamaged
from tarry.replication.journal.write_ahead_log import WriteAheadLog
from tests.replication.journals import MemoryStorage, failing_at, fill, sync
from tests.simulation.disk import unsynced

PAGE_BYTES = 4096


def in_lmdb(folder: Path, write: Callable[[Journal], None]) -> Journal:
    """Leave what is written into a journal in an LMDB, as version 0.1.0; return the journal."""
    disk = MemoryStorage()
    journal = Journal(disk, incarnation=7)
    write(journal)
    sync(journal)
    folder.mkdir(exist_ok=True)
    with lmdb.open(str(folder), map_size=64 << 20, max_dbs=2) as env:
        entries, meta = env.open_db(b"entries"), env.open_db(b"meta")
        with env.begin(write=True) as txn:
            for index, value in disk.records.items():
                txn.put(index.to_bytes(8, "big"), value, db=entries)
            txn.put(b"head", disk.head or b"", db=meta)
    return journal


def write_five(journal: Journal) -> None:
    journal.set_members(MemberList(addresses={"n1": "a:1"}))
    fill(journal, 5)
    journal.set_term(3, "n2")
    journal.set_commit_index(5)


def test_a_journal_in_lmdb_goes_on(tmp_path: Path) -> None:
    before = in_lmdb(tmp_path, write_five)
    for boot in (2, 3):
        journal = Journal(open_log(tmp_path), incarnation=8)
        assert [journal.entry(index) for index in range(1, 6)] == [
            before.entry(index) for index in range(1, 6)
        ]
        assert journal.chain_at(5) == before.chain_at(5)
        assert (journal.term, journal.voted_for, journal.commit_index) == (3, "n2", 5)
        assert (journal.incarnation, journal.boot) == (7, boot)
        assert journal.members == before.members
        sync(journal)
        journal.close()
        assert {path.suffix for path in tmp_path.iterdir()} == {".wal"}


def test_a_compacted_journal_is_taken_over_from_its_first_entry(tmp_path: Path) -> None:
    def write(journal: Journal) -> None:
        write_five(journal)
        journal.compact(3, journal.members or pytest.fail())

    in_lmdb(tmp_path, write)
    journal = Journal(open_log(tmp_path), incarnation=8)
    assert (journal.first_index, journal.last_index) == (3, 5)
    journal.close()


def test_a_takeover_fills_its_segments(tmp_path: Path) -> None:
    """The LMDB is still there: with segments half empty the disk needs room for two more of it."""

    def write(journal: Journal) -> None:
        for index in range(1, 29):
            journal.append(b"\0" + bytes(1 << 20), index, 1)

    in_lmdb(tmp_path, write)
    open_log(tmp_path).close()
    assert len(list(tmp_path.glob("*.wal"))) == 2


def test_an_lmdb_that_was_made_and_never_written_is_an_empty_journal(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path), max_dbs=2) as env:
        env.open_db(b"entries")
        env.open_db(b"meta")
    journal = Journal(open_log(tmp_path), incarnation=8)
    assert journal.empty
    journal.close()


def test_a_takeover_that_was_interrupted_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = in_lmdb(tmp_path, write_five)
    monkeypatch.setattr(lmdb_takeover, "BATCH_BYTES", 1)  # each entry is a batch
    write, left = WriteAheadLog.write, iter(range(3))

    def write_some(log: WriteAheadLog, batch: object) -> None:
        if next(left, None) is None:
            raise OSError(28, "no space left on device")
        write(log, batch)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(WriteAheadLog, "write", write_some)
        with pytest.raises(OSError, match="no space"):
            open_log(tmp_path)
    journal = Journal(open_log(tmp_path), incarnation=8)
    assert journal.chain_at(5) == before.chain_at(5)
    journal.close()


def test_a_takeover_that_ends_at_any_call_of_the_disk_begins_anew_or_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = WriteAheadLog.__init__.__kwdefaults__ or {}
    monkeypatch.setattr(WriteAheadLog.__init__, "__kwdefaults__", kept | {"segment_bytes": 16 << 10})
    before, number, done = in_lmdb(tmp_path / "lmdb", write_five), 0, False
    while not done:
        begun, left = tmp_path / f"begun {number}", tmp_path / f"left {number}"
        shutil.copytree(tmp_path / "lmdb", begun)
        with unsynced(), suppress(KeyboardInterrupt), failing_at(number, KeyboardInterrupt()):
            open_log(begun).close()
            done = True
        shutil.copytree(begun, left)  # as another process finds it
        journal = Journal(open_log(left), incarnation=8)
        assert (journal.chain_at(5), journal.term, journal.incarnation) == (before.chain_at(5), 3, 7)
        journal.close()
        assert {path.suffix for path in left.iterdir()} == {".wal"}
        number += 1
    assert number > 20


def test_an_lmdb_beside_a_whole_log_is_removed_and_not_taken_over_again(tmp_path: Path) -> None:
    """It was to be removed when the power went, or 0.1.0 has made it since."""
    in_lmdb(tmp_path, write_five)
    stale = (tmp_path / "data.mdb").read_bytes()
    journal = Journal(open_log(tmp_path), incarnation=8)
    fill(journal, 9)
    sync(journal)
    journal.close()
    (tmp_path / "data.mdb").write_bytes(stale)
    journal = Journal(open_log(tmp_path), incarnation=8)
    assert journal.last_index == 9
    journal.close()
    assert {path.suffix for path in tmp_path.iterdir()} == {".wal"}


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


def test_no_lost_page_is_read_over_or_ends_the_process(tmp_path: Path) -> None:
    def write(journal: Journal) -> None:
        for index in range(1, 61):
            journal.append(b"\0" + bytes([index]) * 37 * index, index, 1)

    in_lmdb(tmp_path / "whole", write)
    refused = 0
    for copy in damaged_pages(tmp_path, (tmp_path / "whole" / "data.mdb").read_bytes()):
        try:
            opened = Journal(open_log(copy), incarnation=7)
        except JournalDamaged:
            refused += 1
            assert (copy / "data.mdb").exists()
        else:
            assert opened.last_index == 60  # the page was not in use
            opened.close()
    assert refused > 10


def test_an_lmdb_is_there_still_where_the_log_beside_it_is_damaged(tmp_path: Path) -> None:
    in_lmdb(tmp_path, write_five)
    (tmp_path / "0000000000000001.wal").write_bytes(bytes(4_096))
    with pytest.raises(JournalDamaged, match="header"):
        open_log(tmp_path)
    assert (tmp_path / "data.mdb").exists()


def test_an_lmdb_that_is_put_into_the_folder_of_an_empty_log_is_taken_over(tmp_path: Path) -> None:
    """The node was started on a folder whose data was put there afterwards, and ended at once."""
    open_log(tmp_path).close()
    (tmp_path / "next.new").write_bytes(bytes(100))
    before = in_lmdb(tmp_path, write_five)
    journal = Journal(open_log(tmp_path), incarnation=8)
    assert (journal.chain_at(5), journal.term) == (before.chain_at(5), 3)
    journal.close()


def test_a_log_and_an_lmdb_of_two_journals_are_refused_and_both_kept(tmp_path: Path) -> None:
    journal = Journal(open_log(tmp_path), incarnation=8)
    sync(journal)
    journal.close()
    in_lmdb(tmp_path, write_five)
    kept = {path.name for path in tmp_path.iterdir()}
    with pytest.raises(JournalDamaged, match="another journal"):
        open_log(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_a_mark_that_a_takeover_left_does_not_outlive_the_next_start(tmp_path: Path) -> None:
    (tmp_path / lmdb_takeover.MARK).touch()
    journal = Journal(open_log(tmp_path), incarnation=8)
    fill(journal, 5)
    sync(journal)
    journal.close()
    with lmdb.open(str(tmp_path), max_dbs=2):
        pass
    journal = Journal(open_log(tmp_path), incarnation=8)
    assert journal.last_index == 5
    journal.close()
