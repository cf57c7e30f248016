"""What was not written as it is read is refused, or cut where it never counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from tarry.replication.journal import Journal, JournalDamaged
from tarry.replication.journal_lmdb import LmdbStorage
from tests.replication.journals import fill, sync

Open = Callable[..., Journal]


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
