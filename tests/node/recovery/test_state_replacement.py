"""Replacing a damaged state: which states of a peer the journal here can be applied to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.node.recovery.state_replacement import is_ahead
from tarry.proto.tarry_peer_pb2 import LogPosition, MemberList
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.lmdb_storage import LmdbStorage
from tarry.replication.raft.guard.terms import is_plausible
from tarry.replication.snapshot.transfer import SnapshotFailed
from tests.replication.journals import fill, sync


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """Entries 4 to 10, committed up to 8."""
    journal = Journal(LmdbStorage(tmp_path), incarnation=7)
    fill(journal, 10)
    journal.set_commit_index(8)
    sync(journal)
    journal.compact(4, MemberList())
    sync(journal)
    yield journal
    journal.close()


def position(journal: Journal, index: int, term: int = 1) -> LogPosition:
    return LogPosition(index=index, term=term, chain=journal.chain_at(min(index, journal.last_index)))


@pytest.mark.parametrize("index", [4, 8])
def test_a_state_of_the_log_that_is_committed_here_leaves_the_journal_as_it_is(
    journal: Journal, index: int
) -> None:
    assert not is_ahead(journal, position(journal, index))


@pytest.mark.parametrize("index", [9, 11])
def test_the_journal_goes_on_from_a_state_that_has_more_than_is_committed_here(
    journal: Journal, index: int
) -> None:
    assert is_ahead(journal, position(journal, index))


def test_a_state_that_is_older_than_the_journal_is_not_used(journal: Journal) -> None:
    with pytest.raises(SnapshotFailed, match="ends at 3, and the journal here begins at 4"):
        is_ahead(journal, LogPosition(index=3, term=1))


def test_a_state_of_another_log_is_not_used(journal: Journal) -> None:
    other = position(journal, 6)
    other.chain ^= 1
    with pytest.raises(SnapshotFailed, match="another log"):
        is_ahead(journal, other)
    with pytest.raises(SnapshotFailed, match="another log"):
        is_ahead(journal, position(journal, 6, term=2))


def test_a_state_of_an_absurd_term_is_not_used(journal: Journal) -> None:
    assert not is_plausible(1 << 63, journal.term)
    with pytest.raises(SnapshotFailed, match="no election"):
        is_ahead(journal, position(journal, 11, term=1 << 63))
