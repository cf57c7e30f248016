"""The last line of `make chaos`, and what is held against the promises."""

from __future__ import annotations

from tarry.chaos.report.summary import summary, table, too_slow
from tarry.chaos.verdict import Verdict


def test_the_figures_are_added_up_over_the_runs_that_were_played() -> None:
    runs = [
        Verdict("leader-killed-often", 1, duplicates=2, failovers_ms=[400, 900, 500], unavailable_ms=900),
        Verdict("rolling-restart", 1, unavailable_ms=310, not_judged=3),
        Verdict("all-killed", 1, failovers_from_majority_ms=[700, 300]),
        Verdict("disk-full", 1, lost=1, broken=["1 lost"]),
        Verdict("packets-lost-one-way", 1, skipped="not root"),
    ]
    assert summary(runs) == {
        "scenarios": 4, "passed": 3, "lost": 1, "early": 0, "after_cancel": 0, "duplicates": 2,
        "duplicates_beyond_bound": 0, "unmarked": 0, "stuck": 0, "diverged": 0, "not_judged": 3,
        "failover_ms_p50": 500, "failover_ms_p99": 900, "failover_from_majority_ms_max": 700,
        "max_unavailable_ms": 310,
    }  # fmt: skip


def test_figures_beyond_what_is_promised_are_named_and_missing_ones_are_not() -> None:
    figures = summary([Verdict("leader-killed-often", 1, failovers_ms=[1_001, 2_000])])
    assert too_slow(figures) == ["failover_ms_p50 is 1001, more than 1000"]
    assert too_slow(summary([])) == []
    assert too_slow(summary([Verdict("all-killed", 1, failovers_from_majority_ms=[2_001])])) == [
        "failover_from_majority_ms_max is 2001, more than 2000"
    ]
    assert too_slow(summary([Verdict("rolling-restart", 1, unavailable_ms=501)])) == [
        "max_unavailable_ms is 501, more than 500"
    ]


def test_the_table_of_runs_says_what_was_done_and_what_came_of_it() -> None:
    runs = [
        Verdict(
            "crash",
            1,
            traffic="bulk",
            acknowledged=1_234,
            duplicates=2,
            unavailable_ms=456,
            failovers_ms=[500, 400],
        ),
        Verdict("twice", 1, failovers_ms=[300], failovers_from_majority_ms=[700]),
        Verdict("cut", 1, skipped="not root"),
        Verdict("many", 1, left_out=["go", "node"]),
    ]
    assert table(
        runs, {"crash": "SIGKILL.", "twice": "Both.", "cut": "Packets.", "many": "All."}
    ).splitlines()[2:] == [
        "| crash | SIGKILL. | bulk | yes | 1,234 | 2 | 456 | 400 to 500 |",
        "| twice | Both. |  | yes | 0 | 0 | 0 | 300 and 700 from a majority |",
        "| cut | Packets. |  | not played |  |  |  |  |",
        "| many | All. |  | yes, without go, node | 0 | 0 | 0 |  |",
    ]
