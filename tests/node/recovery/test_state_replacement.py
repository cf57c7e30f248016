"""Replacing a damaged state: which states of a peer the journal here can be applied to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.node.config import NodeConfig
from tarry.node.recovery.state_replacement import is_ahead, peers_of, put_away
from tarry.proto.tarry_peer_pb2 import LogPosition, MemberList, MembershipChange
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.records import MEMBERSHIP
from tarry.replication.journal.write_ahead_log import WriteAheadLog
from tarry.replication.raft.guard.terms import is_plausible
from tarry.replication.snapshot.state_folder import StateFolder
from tarry.replication.snapshot.transfer import SnapshotFailed
from tests.replication.journals import fill, sync


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """Entries 4 to 10, committed up to 8."""
    journal = Journal(WriteAheadLog(tmp_path), incarnation=7)
    fill(journal, 10)
    journal.set_commit_index(8)
    sync(journal)
    journal.compact(4, MemberList(addresses={"n1": "a:1", "n2": "before:1"}))
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


def test_a_state_of_another_log_in_what_is_not_known_to_be_committed_is_not_used(journal: Journal) -> None:
    other = position(journal, 9)
    other.chain ^= 1
    with pytest.raises(SnapshotFailed, match="another log"):
        is_ahead(journal, other)


def test_an_entry_of_another_term_that_is_not_known_to_be_committed_gives_way(journal: Journal) -> None:
    assert is_ahead(journal, LogPosition(index=9, term=2, chain=1))


def test_the_state_is_asked_of_those_that_the_journal_names(journal: Journal, tmp_path: Path) -> None:
    members = {"n1": "a:1", "n2": "b:1"}
    config = NodeConfig(node="n1", listen="a:1", data=tmp_path, members=members)
    assert peers_of(config, journal) == {"n2": "b:1"}
    for change in (MembershipChange(node="n3", address="c:1"), MembershipChange(node="n2", remove=True)):
        payload = bytes([MEMBERSHIP]) + change.SerializeToString()
        journal.append(payload, journal.last_index + 1, 1)
    assert peers_of(config, journal) == {"n3": "c:1"}


def test_the_first_damaged_state_is_kept_and_no_later_one(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    for _ in range(3):
        damaged = folder.path
        (damaged / "file").touch()
        folder.side.mkdir()
        folder.promote()
        put_away(folder, damaged)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["current", "damaged-1", "state-4"]
    assert (tmp_path / "damaged-1" / "state-1" / "file").exists()
