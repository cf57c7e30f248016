"""A crash between the swap of a state and the journal's new start, and what was said before an install."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tarry.proto.tarry_peer_pb2 import Append, LogPosition, MemberList
from tarry.replication.driver.install_snapshot import SnapshotInstaller, StateMismatch, finish_installing
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.write_ahead_log import WriteAheadLog
from tarry.replication.raft.guard.terms import TERM_END, TERM_STEP_MAX
from tests.replication.journals import fill, sync
from tests.replication.lone_consensus import Lone

POSITION = LogPosition(index=100, term=2, chain=42, members=MemberList(addresses={"n1": "a"}))


def opened(folder: Path) -> Journal:
    return Journal(WriteAheadLog(folder / "journal", segment_bytes=1 << 20), incarnation=7)


def interrupted(folder: Path) -> Journal:
    """A journal with entries 1 to 5, opened again after a crash in an install."""
    journal = opened(folder)
    fill(journal, 5)
    sync(journal)
    journal.prepare_reset(POSITION)
    sync(journal)
    journal.close()
    return opened(folder)


def test_a_state_that_was_swapped_in_before_a_crash_has_its_journal_begin_with_it(tmp_path: Path) -> None:
    journal = interrupted(tmp_path)
    finish_installing(journal, applied=100)
    sync(journal)
    journal.close()
    journal = opened(tmp_path)
    assert (journal.first_index, journal.last_index, journal.installing) == (100, 100, None)
    finish_installing(journal, applied=100)


def test_a_state_that_was_not_yet_swapped_in_at_a_crash_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    journal = interrupted(tmp_path)
    finish_installing(journal, applied=3)
    assert (journal.first_index, journal.last_index, journal.installing) == (1, 5, None)


@pytest.mark.parametrize("applied", [6, 99])
def test_a_state_with_a_hole_between_it_and_the_journal_is_refused(tmp_path: Path, applied: int) -> None:
    with pytest.raises(StateMismatch):
        finish_installing(interrupted(tmp_path), applied)


def test_what_was_said_before_an_install_can_be_told_from_what_is_said_after(tmp_path: Path) -> None:
    journal = interrupted(tmp_path)
    before = journal.boot
    finish_installing(journal, applied=100)
    assert journal.boot == before + 1


@pytest.mark.parametrize(
    ("index", "term", "taken"),
    [(6, 2, True), (5, 2, False), (6, TERM_STEP_MAX + 2, False), (6, TERM_END, False)],
)
def test_a_state_is_taken_only_if_it_is_ahead_and_of_a_term_that_elections_lead_to(
    index: int, term: int, taken: bool
) -> None:
    lone = Lone()
    lone.follow("n2", entries=3)
    commit = Append(term=1, prev_index=lone.journal.last_index, prev_term=1, commit_index=5, sequence=2)
    lone.receive("n2", append=commit)
    assert (lone.consensus.state.commit_index, lone.consensus.state.term) == (lone.journal.last_index, 1)
    replica = SimpleNamespace(consensus=lone.consensus)
    position = LogPosition(index=lone.consensus.state.commit_index + index - 5, term=term)
    assert SnapshotInstaller(replica, None, None)._is_ahead(position) is taken  # type: ignore[arg-type]
