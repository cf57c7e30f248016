"""An append means what it says and nothing more."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.proto.tarry_peer_pb2 import Append, LoggedEntry, LogPosition
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.write_ahead_log import WriteAheadLog
from tarry.replication.raft.guard.appends import AnotherHistory, CommittedEntryConflict, plan


@dataclass
class Terms:
    """A log as the terms of its entries, from `first_index` on."""

    terms: list[int]
    first_index: int = 1

    @property
    def last_index(self) -> int:
        return self.first_index + len(self.terms) - 1

    def term_at(self, index: int) -> int | None:
        return self.terms[index - self.first_index] if self.first_index <= index <= self.last_index else None

    def chain_at(self, index: int) -> int:
        return 7

    def entry(self, index: int) -> tuple[bytes, int, int]:
        return b"\0", index, self.terms[index - self.first_index]


def append(prev: int, prev_term: int, terms: list[int], commit: int = 0, chain: int = 0) -> Append:
    entries = [LoggedEntry(term=term, payload=b"\0") for term in terms]
    return Append(
        term=9, prev_index=prev, prev_term=prev_term, commit_index=commit, entries=entries, prev_chain=chain
    )


def test_new_entries_go_to_the_end() -> None:
    done = plan(append(3, 1, [1, 2]), Terms([1, 1, 1]), commit_index=1)
    assert (done.prev_index, len(done.entries), done.next_index, done.success) == (3, 2, 6, True)


def test_a_late_duplicate_deletes_nothing() -> None:
    """Or a duplicate append takes back acknowledged entries (a1)."""
    done = plan(append(1, 1, [1]), Terms([1, 1, 1, 1]), commit_index=1)
    assert (done.prev_index, list(done.entries)) == (4, [])
    assert (done.next_index, done.success) == (3, True)


def test_a_resent_range_is_cut_to_what_is_new() -> None:
    """Or each repeated range first truncates the log (a2)."""
    done = plan(append(1, 1, [1, 1, 1, 1]), Terms([1, 1, 1]), commit_index=1)
    assert (done.prev_index, len(done.entries), done.next_index) == (3, 2, 6)


def test_a_conflict_of_terms_is_truncated_from_there_on() -> None:
    done = plan(append(1, 1, [1, 3]), Terms([1, 1, 2, 2]), commit_index=2)
    assert (done.prev_index, [entry.term for entry in done.entries]) == (2, [3])


@pytest.mark.parametrize("prev", [1, 3])
def test_another_content_of_the_same_term_stops_the_process(prev: int) -> None:
    log = Terms([1, 1, 1])
    assert plan(append(prev, 1, [], chain=7), log, commit_index=2).success
    with pytest.raises(AnotherHistory):
        plan(append(prev, 1, [1], chain=8), log, commit_index=2)
    assert not plan(append(3, 2, [2], chain=8), log, commit_index=2).success  # of another term: as ever
    assert not plan(append(9, 1, [1], chain=8), log, commit_index=2).success


def test_a_repeated_entry_of_another_content_stops_the_process() -> None:
    repeated = append(1, 1, [1, 1])
    assert plan(repeated, Terms([1, 1, 1]), commit_index=3).success
    repeated.entries[1].payload = b"another"
    with pytest.raises(AnotherHistory):
        plan(repeated, Terms([1, 1, 1]), commit_index=3)


def test_a_snapshots_mark_is_not_compared_with_the_leaders_entry_and_what_follows_it_is(
    tmp_path: Path,
) -> None:
    journal = Journal(WriteAheadLog(tmp_path / "journal", segment_bytes=1 << 20), incarnation=7)
    journal.prepare_reset(LogPosition(index=4, term=1, chain=7))
    journal.reset()
    repeated = append(3, 1, [1, 1])
    done = plan(repeated, journal, commit_index=4)
    assert (done.success, done.prev_index, len(done.entries), done.next_index) == (True, 4, 1, 6)
    journal.append(b"\0another", 5, 1)
    with pytest.raises(AnotherHistory):
        plan(repeated, journal, commit_index=4)
    journal.close()


def test_a_conflict_at_or_below_the_commit_index_stops_the_process() -> None:
    with pytest.raises(CommittedEntryConflict):
        plan(append(1, 1, [3]), Terms([1, 1, 1]), commit_index=2)


@pytest.mark.parametrize(("prev", "prev_term"), [(7, 1), (4, 2)])
def test_a_gap_or_a_differing_predecessor_is_answered_with_one_step_back_to_the_commit_index(
    prev: int, prev_term: int
) -> None:
    """Or the leader goes back one entry per round trip, or never arrives (h)."""
    done = plan(append(prev, prev_term, [2]), Terms([1, 1, 1, 1]), commit_index=2)
    assert (done.success, done.next_index) == (False, 3)


def test_the_commit_index_goes_no_further_than_what_the_append_verified() -> None:
    """Or a deposed leader's entries count as committed when it comes back (e1)."""
    done = plan(append(2, 1, [], commit=4), Terms([1, 1, 1, 1]), commit_index=1)
    assert done.commit_index == 2


def test_what_is_compacted_here_counts_as_agreeing() -> None:
    done = plan(append(2, 1, [1, 1, 1, 1]), Terms([1, 1], first_index=4), commit_index=5)
    assert (done.success, done.prev_index, len(done.entries), done.next_index) == (True, 5, 1, 7)


def logs(terms: list[int]) -> st.SearchStrategy[list[int]]:
    """Of different leaders: no term in common, or equal (index, term) would mean an equal past."""
    return st.lists(st.sampled_from(terms), max_size=6).map(sorted)


@given(
    logs([2, 4]), logs([3, 5]), st.integers(0, 6), st.integers(0, 6), st.integers(0, 6), st.integers(0, 14)
)
def test_following_the_plan_never_loses_what_agrees_and_ends_in_agreement(
    own: list[int], leaders: list[int], agreed: int, prev: int, end: int, commit: int
) -> None:
    """Two logs that agree on a prefix: after the plan they agree on all that the append covered."""
    shared = [1] * (agreed + 1)
    log, leader = Terms(shared + own), Terms(shared + leaders)
    committed = min(commit, len(shared))
    prev = min(prev + 1, leader.last_index)
    entries = leader.terms[prev : prev + end]
    done = plan(append(prev, leader.term_at(prev) or 0, entries, commit=commit), log, committed)
    if not done.success:
        assert done.next_index == committed + 1
        return
    if done.entries:
        after = log.terms[: done.prev_index] + [entry.term for entry in done.entries]
    else:
        after = log.terms
        assert done.prev_index == log.last_index
    covered = prev + len(entries)
    assert done.next_index == covered + 1
    assert done.commit_index <= covered
    assert after[:covered] == leader.terms[:covered]
    if log.terms[:covered] == leader.terms[:covered]:
        assert len(after) >= len(log.terms)
