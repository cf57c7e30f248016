"""Lateness is put down to the innermost part of a turn, to missing CPU time, or to the way to the client."""

from __future__ import annotations

from typing import Any

import numpy as np

from tarry.bench.side_by_side.waits import IDLE, ON_DISK, PROCESSOR, TO_CLIENT, Spans, waits

AT_S = 1_800_000_000.0
NAMES = ["other", "apply release", "delivery", ON_DISK]


def spans(*told: tuple[str, float, float, float]) -> Spans:
    """Return spans of (cause, begin, end, CPU time), in ms, in the order of their ends."""
    rows = np.array([(AT_S + begin / 1e3, AT_S + end / 1e3, cpu / 1e3) for _, begin, end, cpu in told])
    return Spans(rows, np.array([NAMES.index(cause) for cause, *_ in told]), NAMES)


def of(found: Spans, *came: tuple[float, float]) -> dict[str, Any]:
    due_ms, came_ms = (np.array(column) + AT_S * 1e3 for column in zip(*came, strict=True))
    return waits(found, due_ms, came_ms)


def test_each_ms_counts_for_the_innermost_part_and_without_cpu_time_for_the_processor() -> None:
    turn = spans(("apply release", 2, 6, 1), ("delivery", 7, 9, 2), ("other", 1, 10, 6.75))
    found = of(turn, (0, 12))
    expected = {
        PROCESSOR: 3.5,
        TO_CLIENT: 3.0,
        "delivery": 2.0,
        "other": 1.5,
        "apply release": 1.0,
        IDLE: 1.0,
    }
    assert found["ms"] == expected
    assert found["largest"] == {PROCESSOR: 1}


def test_a_journal_write_counts_whole_since_it_waits_for_the_disk() -> None:
    turn = spans((ON_DISK, 1, 8, 0.1), ("delivery", 8, 9, 1), ("other", 0, 9, 2.1))
    found = of(turn, (1, 9), (1, 3.9))
    assert (found["messages"], found["late"], found["largest"]) == (2, 1, {ON_DISK: 1})
    assert found["ms"] == {ON_DISK: 7.0, "delivery": 1.0}


def test_what_is_on_time_waits_for_nothing() -> None:
    assert of(spans(("delivery", 0, 1, 1)), (0, 2)) == {"messages": 1, "late": 0, "ms": {}, "largest": {}}
