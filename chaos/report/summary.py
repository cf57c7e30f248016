"""The figures of many runs together: the last line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tarry.chaos.checks.deliveries import percentile
from tarry.chaos.verdict import Verdict

ADDED = (
    "lost", "early", "after_cancel", "duplicates", "duplicates_beyond_bound", "unmarked", "stuck", "diverged",
    "not_judged",
)  # fmt: skip
PLANNED = frozenset({"rolling-restart", "planned-transfers", "upgrade"})
"""Scenarios in which nothing breaks: on them the time without service is judged."""
PROMISED = {
    "failover_ms_p50": 1_000, "failover_ms_p99": 2_000, "failover_from_majority_ms_max": 2_000,
    "max_unavailable_ms": 500,
}  # fmt: skip


def too_slow(figures: Mapping[str, int | None]) -> list[str]:
    """Return, in words, the promises that the figures are beyond; one without a figure is not among them."""
    return [
        f"{name} is {figure}, more than {most}"
        for name, most in PROMISED.items()
        if (figure := figures[name]) is not None and figure > most
    ]


def summary(verdicts: Sequence[Verdict]) -> dict[str, int | None]:
    """Return the figures: counts over all runs, failovers over all SIGKILLs of leaders
    (`failover_from_majority_ms_max`: those that left no majority, from when there was one again).

    `max_unavailable_ms`: the longest time without an acknowledged schedule in a planned change; None: none
    was played, as a percentile without failovers is.
    """
    played = [verdict for verdict in verdicts if not verdict.skipped]
    failovers = sorted(each for verdict in played for each in verdict.failovers_ms)
    without = [each for verdict in played for each in verdict.failovers_from_majority_ms]
    planned = [verdict.unavailable_ms for verdict in played if verdict.scenario in PLANNED]
    return {
        "scenarios": len(played),
        "passed": sum(verdict.passed for verdict in played),
        **{name: sum(getattr(verdict, name) for verdict in played) for name in ADDED},
        "failover_ms_p50": percentile(failovers, 50) if failovers else None,
        "failover_ms_p99": percentile(failovers, 99) if failovers else None,
        "failover_from_majority_ms_max": max(without, default=None),
        "max_unavailable_ms": max(planned, default=None),
    }


def table(verdicts: Sequence[Verdict], what: Mapping[str, str]) -> str:
    """Return a Markdown table of runs, as chaos/README.md has it; `what` is done, by scenario."""
    rows = [
        "| scenario | what is done | load | kept | acknowledged | repeated | unavailable ms | failover ms |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in verdicts:
        span = _span(one.failovers_ms)
        if one.failovers_from_majority_ms:
            span += f"{' and ' if span else ''}{_span(one.failovers_from_majority_ms)} from a majority"
        kept = "not played" if one.skipped else "yes" if one.passed else "**no**"
        if one.left_out:
            kept += f", without {', '.join(one.left_out)}"
        figures = (
            ("", "", "", "")
            if one.skipped
            else (f"{one.acknowledged:,}", one.duplicates, one.unavailable_ms, span)
        )
        rows.append(
            f"| {' | '.join(map(str, (one.scenario, what[one.scenario], one.traffic, kept, *figures)))} |"
        )
    return "\n".join(rows) + "\n"


def _span(figures: Sequence[int]) -> str:
    return f"{min(figures)} to {max(figures)}" if figures[1:] else "".join(map(str, figures))
