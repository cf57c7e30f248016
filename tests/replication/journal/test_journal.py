"""The journal over its write-ahead log: what is written is there again; what is damaged is refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tarry.proto.tarry_peer_pb2 import LogPosition, MemberList
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.records import JournalDamaged, JournalMisused, Sizes
from tarry.replication.journal.write_ahead_log import WriteAheadLog
from tarry.replication.raft.guard.terms import TERM_END, TERM_STEP_MAX
from tarry.replication.raft.journal_view import JournalView
from tests.replication.journals import fill, sync

Open = Callable[..., Journal]


@pytest.fixture
def open_journal(tmp_path: Path) -> Open:
    def open_(**numbers: int) -> Journal:
        return Journal(WriteAheadLog(tmp_path / "journal", segment_bytes=1 << 20), incarnation=7, **numbers)

    return open_


def test_entries_term_and_vote_are_there_after_reopening(open_journal: Open) -> None:
    journal = open_journal()
    fill(journal, 10)
    journal.set_term(4, "n2")
    journal.set_commit_index(8)
    sync(journal)
    chain = journal.chain_at(10)
    journal.close()
    journal = open_journal()
    assert (journal.first_index, journal.last_index, journal.last_term) == (1, 10, 1)
    assert (journal.term, journal.voted_for, journal.commit_index) == (4, "n2", 8)
    assert journal.entry(journal.last_index) == (b"\0entry 10", 10, 1)
    assert journal.chain_at(10) == chain


def test_a_term_never_goes_back(open_journal: Open) -> None:
    """Or a node votes twice in one."""
    journal = open_journal()
    journal.set_term(3, "n3")
    with pytest.raises(JournalMisused):
        journal.set_term(2, "n2")


def test_each_opening_has_a_higher_boot_number_and_the_same_incarnation(open_journal: Open) -> None:
    boots = []
    for _ in range(3):
        journal = open_journal()
        sync(journal)
        boots.append((journal.incarnation, journal.boot))
        journal.close()
    assert boots == [(7, 1), (7, 2), (7, 3)]


@pytest.mark.parametrize("term", [TERM_END, 2**64 - 1])
def test_a_term_that_no_election_leads_to_is_mended_above_every_true_one(
    open_journal: Open, term: int
) -> None:
    journal = open_journal()
    fill(journal, 3, term=6)
    journal.set_term(term, "n2")
    sync(journal)
    journal.close()
    for _ in range(2):
        journal = open_journal()
        assert (journal.term, journal.voted_for, journal.last_term) == (6 + TERM_STEP_MAX // 2, None, 6)
        sync(journal)
        journal.close()


def test_entries_of_a_term_that_no_election_leads_to_are_damage(open_journal: Open) -> None:
    journal = open_journal()
    fill(journal, 3, term=TERM_END)
    journal.set_term(TERM_END, None)
    sync(journal)
    journal.close()
    with pytest.raises(JournalDamaged):
        open_journal()


def test_what_was_not_written_is_gone_after_reopening(open_journal: Open) -> None:
    journal = open_journal()
    fill(journal, 5)
    sync(journal)
    fill(journal, 9)
    journal.set_term(3, None)
    journal.stage()
    journal.close()
    journal = open_journal()
    assert (journal.last_index, journal.term) == (5, 0)


def test_deleting_the_end_and_appending_anew_leaves_only_the_new(open_journal: Open) -> None:
    journal = open_journal()
    fill(journal, 10)
    sync(journal)
    journal.delete_from(6)
    fill(journal, 8, term=2)
    sync(journal)
    journal.close()
    journal = open_journal()
    assert [entry[1:] for entry in JournalView(journal)[:]] == [(i, 1 if i < 6 else 2) for i in range(1, 9)]


def test_what_was_deleted_is_not_durable_when_others_take_its_place(open_journal: Open) -> None:
    journal = open_journal()
    fill(journal, 5)
    sync(journal)
    journal.delete_from(4)
    fill(journal, 6, term=2)
    assert journal.durable_index == 3
    sync(journal)
    assert journal.durable_index == 6


def test_deleting_what_was_appended_in_the_same_turn_writes_neither(open_journal: Open) -> None:
    journal = open_journal()
    fill(journal, 3)
    sync(journal)
    fill(journal, 6)
    journal.delete_from(5)
    batch = journal.stage()
    assert batch is not None
    assert [index for index, _ in batch.puts] == [4]
    assert batch.last_index == 4


def test_the_chain_tells_apart_logs_that_differ_anywhere(open_journal: Open) -> None:
    journal = open_journal()
    fill(journal, 10)
    chain = journal.chain_at(10)
    journal.delete_from(4)
    fill(journal, 10, term=2)
    assert journal.chain_at(10) != chain


def test_committed_entries_cannot_be_deleted(open_journal: Open) -> None:
    journal = open_journal()
    fill(journal, 10)
    journal.set_commit_index(6)
    with pytest.raises(JournalMisused):
        journal.delete_from(6)
    journal.delete_from(7)


def test_compacting_moves_the_start_and_keeps_at_least_two_entries(open_journal: Open) -> None:
    journal = open_journal()
    fill(journal, 10)
    journal.set_commit_index(10)
    sync(journal)
    journal.compact(6, MemberList(addresses={"n1": "a"}))
    sync(journal)
    assert (journal.first_index, len(JournalView(journal)), JournalView(journal)[0][1]) == (6, 5, 6)
    journal.compact(100, MemberList(addresses={"n1": "a", "n2": "b"}, added=["n2"]))
    sync(journal)
    journal.close()
    journal = open_journal()
    assert (journal.first_index, journal.last_index) == (9, 10)
    assert journal.members == MemberList(addresses={"n1": "a", "n2": "b"}, added=["n2"])


def test_what_is_not_committed_cannot_be_compacted(open_journal: Open) -> None:
    journal = open_journal()
    fill(journal, 10)
    journal.set_commit_index(4)
    with pytest.raises(JournalMisused):
        journal.compact(6, MemberList())


def position(index: int, term: int) -> LogPosition:
    return LogPosition(index=index, term=term, chain=42, members=MemberList(addresses={"n1": "a"}))


def test_a_reset_leaves_a_mark_from_which_the_log_goes_on(open_journal: Open) -> None:
    journal = open_journal()
    fill(journal, 5)
    journal.set_term(3, "n3")
    sync(journal)
    journal.prepare_reset(position(100, 2))
    sync(journal)
    journal.reset()
    journal.append(b"\0next", 101, 3)
    sync(journal)
    chain = journal.chain_at(101)
    journal.close()
    journal = open_journal()
    assert (journal.first_index, journal.last_index, journal.term_at(100), journal.commit_index) == (
        100,
        101,
        2,
        100,
    )
    assert (journal.term, journal.voted_for, journal.installing) == (3, "n3", None)
    assert (journal.chain_at(100), journal.chain_at(101)) == (42, chain)
    assert journal.members == MemberList(addresses={"n1": "a"})


def test_a_reset_to_an_entry_that_the_log_contains_keeps_what_follows_it(open_journal: Open) -> None:
    """It may have been acknowledged (Raft section 7)."""
    journal = open_journal()
    fill(journal, 10)
    sync(journal)
    journal.prepare_reset(position(6, 1))
    journal.reset()
    sync(journal)
    journal.close()
    journal = open_journal()
    assert (journal.first_index, journal.last_index, journal.commit_index) == (6, 10, 6)
    assert journal.entry(10) == (b"\0entry 10", 10, 1)


def test_a_reset_to_an_entry_of_a_higher_term_raises_the_term_and_ends_the_vote(open_journal: Open) -> None:
    journal = open_journal()
    fill(journal, 5)
    journal.set_term(3, "n3")
    journal.prepare_reset(position(100, 5))
    journal.reset()
    sync(journal)
    journal.close()
    journal = open_journal()
    assert (journal.term, journal.voted_for, journal.last_term) == (5, None, 5)


def test_a_reset_to_an_entry_of_another_term_drops_what_follows_it(open_journal: Open) -> None:
    journal = open_journal()
    fill(journal, 10)
    sync(journal)
    journal.prepare_reset(position(6, 2))
    journal.reset()
    sync(journal)
    journal.close()
    journal = open_journal()
    assert (journal.first_index, journal.last_index, journal.last_term) == (6, 6, 2)


def test_an_announced_reset_is_remembered_until_it_is_done(open_journal: Open) -> None:
    journal = open_journal()
    fill(journal, 5)
    journal.prepare_reset(position(100, 2))
    sync(journal)
    journal.close()
    journal = open_journal()
    assert journal.installing == position(100, 2)
    assert journal.last_index == 5


def test_a_reset_to_what_is_already_committed_is_refused(open_journal: Open) -> None:
    journal = open_journal()
    fill(journal, 5)
    journal.set_commit_index(5)
    with pytest.raises(JournalMisused):
        journal.prepare_reset(position(5, 1))


def test_what_is_worth_keeping_before_a_point_is_measured_in_bytes(open_journal: Open) -> None:
    journal = open_journal()
    for index in range(1, 21):
        journal.append(b"\0" + bytes(99), index, 1)
    assert journal.start_retaining(20, bytes_max=500) == 15
    assert journal.start_retaining(20, bytes_max=10**9) == 1
    journal.set_commit_index(20)
    journal.compact(10, MemberList())
    assert journal.start_retaining(20, bytes_max=500) == 15
    journal.delete_from(21)
    assert journal.start_retaining(20, bytes_max=10**9) == 10


def test_memory_holds_only_the_tail_and_the_rest_is_read_on_demand(open_journal: Open) -> None:
    journal = open_journal(tail_entries_max=8)
    fill(journal, 100)
    sync(journal)
    assert len(journal._tail) == 8
    assert journal.entry(3) == (b"\0entry 3", 3, 1)
    assert [entry[1] for entry in JournalView(journal)[10:13]] == [11, 12, 13]


def test_a_slice_costs_nothing_until_it_is_read(open_journal: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = open_journal(tail_entries_max=2)
    fill(journal, 50)
    sync(journal)
    read: list[int] = []
    find = journal._find
    monkeypatch.setattr(journal, "_find", lambda index: (read.append(index), find(index))[1])
    rest = JournalView(journal)[10:]
    assert (len(rest), read) == (40, [])
    assert rest[0][1] == 11
    assert read == [11]


def test_entries_not_yet_durable_stay_in_memory_whatever_the_bound(open_journal: Open) -> None:
    journal = open_journal(tail_entries_max=8)
    fill(journal, 50)
    assert [entry[1] for entry in JournalView(journal)[:]] == list(range(1, 51))


def test_a_commit_index_never_exceeds_what_is_durable(open_journal: Open) -> None:
    journal = open_journal()
    fill(journal, 5)
    sync(journal)
    fill(journal, 9)
    journal.set_commit_index(9)
    assert journal.commit_index == 5


def test_membership_entries_are_found_again_and_forgotten_when_deleted(open_journal: Open) -> None:
    journal = open_journal()
    fill(journal, 3)
    journal.append(b"\x02change", 4, 1)
    sync(journal)
    journal.close()
    journal = open_journal()
    assert journal.membership_changes == [(4, b"\x02change")]
    journal.delete_from(4)
    assert journal.membership_changes == []


def test_what_is_retained_does_not_depend_on_how_it_was_dropped() -> None:
    rng = random.Random(11)
    sizes, kept, first = Sizes(), [], 1
    for _ in range(2_000):
        for _ in range(rng.randrange(4)):
            kept.append(rng.randrange(1, 100))
            sizes.push(kept[-1])
        if len(kept) > 20:
            end = len(kept) - rng.randrange(3)
            sizes.cut(end)
            del kept[end:]
            count = rng.randrange(4)
            sizes.drop(count)
            del kept[:count]
            first += count
            at, bytes_max = rng.randrange(len(kept)), rng.randrange(1_000)
            expected = next(start for start in range(at + 1) if sum(kept[start + 1 : at + 1]) <= bytes_max)
            assert sizes.start_retaining(first, first + at, bytes_max) == first + expected
