"""What is repeated is counted by fault, and a repetition beyond its bound is found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tarry.chaos.history import FireMessage, PlannedFires
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


def test_a_fire_of_a_schedule_that_is_doubled_left_out_or_early_breaks_a_promise() -> None:
    sound = record([0], [940], [1_000])
    sound.fires.planned.append(PlannedFires("s", 1_000, 1_000, 3_000))
    sound.fires.messages += [FireMessage("s", f"i{at}", at, at + 2) for at in (1_000, 2_000)]
    result = judge(sound, 1, 1.0)
    assert (result.fires, result.kept) == (2, True)
    *_, last = sound.fires.messages
    for messages, doubled, left_out, wrong in (
        ([*sound.fires.messages, replace(last, id="again")], 1, 0, 0),
        (sound.fires.messages[:1], 0, 1, 0),
        ([*sound.fires.messages, replace(last, received_ms=1_999)], 0, 0, 1),
    ):
        sound.fires.messages = messages
        result = judge(sound, 1, 1.0)
        assert (result.fires_doubled, result.fires_left_out, result.fires_wrong) == (doubled, left_out, wrong)
        assert not result.kept
        sound.fires.messages = [FireMessage("s", f"i{at}", at, at + 2) for at in (1_000, 2_000)]
