"""What is repeated is counted by fault, and a repetition beyond its bound is found."""

from __future__ import annotations

import numpy as np

from tarry.chaos.handover import Record, judge, repeats


def record(tokens: list[int], received_ms: list[int], faults_ms: list[int]) -> Record:
    return Record(
        sent=[range(max(tokens) + 1)],
        tokens=[np.array(tokens, dtype=np.uint64)],
        received_ms=[np.array(received_ms)],
        due_ms=[np.zeros(len(tokens), dtype=np.int64)],
        faults_ms=faults_ms,
    )


def test_a_repetition_belongs_to_the_fault_before_it() -> None:
    one = record([0, 1, 1, 2, 0, 1], [5, 10, 110, 120, 230, 240], [100, 200])
    assert repeats(one.tokens[0], one.received_ms[0], one.faults_ms) == [1, 2]


def test_after_a_kill_no_more_may_be_repeated_than_came_from_50_ms_before_it() -> None:
    inside = record([0, 1, 0], [940, 960, 1_500], [1_000])
    assert judge(inside, 1, 1.0, dedupe=False).kept
    beyond = record([0, 1, 0, 1], [940, 960, 1_500, 1_500], [1_000])
    result = judge(beyond, 1, 1.0, dedupe=False)
    assert (result.duplicates, result.duplicates_bound, result.duplicates_beyond) == (2, 1, 1)
    assert not result.kept


def test_after_a_transfer_and_with_dedupe_nothing_may_be_repeated() -> None:
    repeated = record([0, 0], [990, 1_500], [1_000])
    assert not judge(repeated, 0, 1.0, dedupe=False).kept
    assert judge(repeated, 1, 1.0, dedupe=False).kept
    assert not judge(repeated, 1, 1.0, dedupe=True).kept


def test_what_was_acknowledged_and_never_came_is_lost() -> None:
    missing = record([0, 2], [990, 1_500], [1_000])
    assert judge(missing, 1, 1.0, dedupe=False).lost == 1
