"""What was not written as it is read is refused, or cut where it never counted."""

from __future__ import annotations

import pytest

from tarry.replication.journal.journal import Journal
from tarry.replication.journal.records import JournalDamaged
from tests.replication.journals import MemoryStorage, fill, sync


def test_an_entry_that_rots_after_the_start_is_refused_when_it_is_read() -> None:
    disk = MemoryStorage()
    journal = Journal(disk, incarnation=7, tail_entries_max=2)
    fill(journal, 9)
    sync(journal)
    disk.records[3] = disk.records[3][:-1] + b"?"
    with pytest.raises(JournalDamaged, match="entry 3: checksum"):
        journal.entry(3)


def test_a_flipped_bit_of_term_or_vote_is_refused_at_the_start() -> None:
    disk = MemoryStorage()
    journal = Journal(disk, incarnation=7)
    journal.set_term(3, "n3")
    sync(journal)
    assert disk.head is not None
    disk.head = disk.head.replace(b"n3", b"n2")
    with pytest.raises(JournalDamaged, match="head"):
        Journal(disk, incarnation=7)


def test_an_entry_of_another_log_is_refused_at_the_start() -> None:
    disks = [MemoryStorage() for _ in range(2)]
    for number, disk in enumerate(disks):
        journal = Journal(disk, incarnation=7)
        for index in range(1, 6):
            journal.append(b"\0%d of log %d" % (index, number), index, 1)
        sync(journal)
    disks[0].records[3] = disks[1].records[3]  # whole in itself
    with pytest.raises(JournalDamaged, match="entry 3"):
        Journal(disks[0], incarnation=7)


@pytest.mark.parametrize("missing", [1, 3, 5])
def test_a_missing_entry_is_refused_at_the_start(missing: int) -> None:
    disk = MemoryStorage()
    journal = Journal(disk, incarnation=7)
    fill(journal, 5)
    sync(journal)
    del disk.records[missing]
    with pytest.raises(JournalDamaged):
        Journal(disk, incarnation=7)


def test_entries_beyond_the_head_are_of_a_write_that_never_ended_and_are_cut() -> None:
    disk = MemoryStorage()
    journal = Journal(disk, incarnation=7)
    fill(journal, 5)
    sync(journal)
    disk.records[6] = b"half an entry"
    journal = Journal(disk, incarnation=7)
    assert journal.last_index == 5
    fill(journal, 6)
    sync(journal)
    assert Journal(disk, incarnation=7).entry(6) == (b"\0entry 6", 6, 1)
