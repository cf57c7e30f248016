"""What is repeated is counted by fault, and a repetition beyond its bound is found."""

from __future__ import annotations

import numpy as np

from tarry.chaos.leader_changes import RECEIPT, Receipts, Record, bounds, judge, repeats, unmarked

ELECTION_MS = 100


def receipts(tokens: list[int], received_ms: list[int], faults_ms: list[int]) -> Receipts:
    """Return receipts of leaders who each last until an election after a fault."""
    rows = np.zeros(len(tokens), RECEIPT)
    rows["token"], rows["received_ms"] = tokens, received_ms
    rows["term"] = np.searchsorted(np.array(faults_ms), np.array(received_ms) - ELECTION_MS) + 1
    rows["marked"] = [token in tokens[:place] for place, token in enumerate(tokens)]
    return Receipts([rows])


def record(tokens: list[int], received_ms: list[int], faults_ms: list[int]) -> Record:
    return Record(
        plain=receipts(tokens, received_ms, faults_ms),
        dedupe=receipts(sorted(set(tokens)), [1] * len(set(tokens)), faults_ms),
        sent=[range(max(tokens) + 1)],
        faults_ms=faults_ms,
        fault_terms=list(range(1, len(faults_ms) + 1)),
    )


def test_a_repetition_belongs_to_the_fault_before_it() -> None:
    one = receipts([0, 1, 1, 2, 0, 1], [5, 10, 110, 120, 230, 240], [100, 200])
    assert repeats(one.all(), [100, 200]).tolist() == [1, 2]


def test_after_a_kill_no_more_may_be_repeated_than_came_from_50_ms_before_it() -> None:
    assert judge(record([0, 1, 1], [940, 960, 1_500], [1_000]), 1, 1.0).kept
    result = judge(record([0, 1, 0, 1], [940, 960, 1_500, 1_500], [1_000]), 1, 1.0)
    assert (result.duplicates, result.duplicates_bound, result.duplicates_beyond) == (2, 1, 1)
    assert not result.kept


def test_what_was_on_its_way_from_the_killed_leader_counts_as_its_last() -> None:
    assert bounds(record([0, 1, 1], [940, 1_020, 1_500], [1_000]), 1).tolist() == [1]


def test_after_a_transfer_and_with_dedupe_nothing_may_be_repeated() -> None:
    repeated = record([0, 0], [990, 1_500], [1_000])
    assert not judge(repeated, 0, 1.0).kept
    assert judge(repeated, 1, 1.0).kept
    repeated.dedupe = repeated.plain
    assert not judge(repeated, 1, 1.0).kept


def test_a_repetition_without_a_mark_is_found_whichever_copy_comes_first() -> None:
    repeated = record([0, 1, 2, 1], [940, 960, 970, 1_500], [1_000])
    result = judge(repeated, 1, 1.0)
    assert (result.duplicates, result.unmarked, result.kept) == (1, 0, True)
    first, again = [1], [3]
    for doubtful, bare in ((first, again), ([0], again), (first + again, [])):
        repeated.plain.batches[0]["marked"] = np.isin(np.arange(4), doubtful)
        assert unmarked(repeated.plain.all()) == len(bare)
    assert judge(repeated, 1, 1.0).kept
    repeated.plain.batches[0]["marked"] = False
    assert not judge(repeated, 1, 1.0).kept


def test_what_was_acknowledged_and_never_came_is_lost() -> None:
    assert judge(record([0, 2], [990, 1_500], [1_000]), 1, 1.0).lost == 2  # to both groups
