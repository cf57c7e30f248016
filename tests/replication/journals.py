"""What tests of the journal share."""

from __future__ import annotations

from tarry.replication.journal.journal import Journal
from tarry.replication.journal.records import StorageFull


def sync(journal: Journal) -> None:
    batch = journal.stage()
    assert batch is not None
    try:
        journal.write(batch)
    except StorageFull:
        journal.grow()
        journal.write(batch)
    journal.mark_durable(batch)


def fill(journal: Journal, last: int, term: int = 1) -> None:
    for index in range(journal.last_index + 1, last + 1):
        journal.append(b"\0entry %d" % index, index, term)
