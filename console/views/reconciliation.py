"""Runs of ``tarry reconcile``, as the files that it has written tell of them; nothing in these is trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tarry.console.views import cells
from tarry.console.views.json_values import number_of, object_of, text_of
from tarry.console.views.table import Column, Row

FIGURES_MAX: Final = 100
FIGURE_CHARACTERS_MAX: Final = 2_000
CHECKS_MAX: Final = 200
ROWS_MAX: Final = 1_000
"""Of a check; a run writes 200."""
RUN_COLUMNS: Final = (
    Column("name", "Run", show=lambda row: cells.link(row["name"], "reconciliation", row["name"])),
    Column("state", "Promises", show=lambda row: cells.badge(row["state"], row["kind"])),
    Column("as_of_ms", "Judged up to", show=lambda row: cells.time(row["as_of_ms"] or 0)),
    Column("scheduled", "Scheduled", number=True),
    Column("missing", "Missing", number=True),
    Column("duplicates", "Duplicates", number=True),
    Column("broken", "Broken promises"),
)
CHECK_COLUMNS: Final = (
    Column("check", "Check", show=lambda row: cells.link_to(row["check"], row["address"])),
    Column("promise", "Finds", show=lambda row: "a broken promise" if row["promise"] else "a remark"),
    Column("count", "Found", number=True),
)
FOUND_COLUMNS: Final = (
    Column(
        "id", "Message", show=lambda row: cells.link(row["id"], "message", row["id"]) if row["id"] else ""
    ),
    Column("topic", "Topic"),
    Column("group", "Group"),
    Column("due_ms", "Due", show=lambda row: cells.time(row["due_ms"] or 0)),
    Column("at_ms", "At", show=lambda row: cells.time(row["at_ms"] or 0)),
    Column("index", "Entry", number=True),
    Column("source", "Node"),
    Column("detail", "Detail"),
)


@dataclass(frozen=True, slots=True)
class Check:
    """Findings of a check."""

    name: str
    promise: bool
    count: int
    rows: Sequence[Row]
    """The first of them."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run."""

    made_ms: int | None
    ledgers: tuple[str, ...]
    kept: bool | None
    figures: Sequence[tuple[str, str]]
    checks: Sequence[Check]


def run_row(name: str, summary: bytes | None) -> Row:
    """Return the row of a run; ``summary``: its summary.json, None where it cannot be read."""
    row: dict[str, object] = {"name": name, "state": "not finished", "kind": "warn", "broken": ""}
    row |= dict.fromkeys(("as_of_ms", "scheduled", "missing", "duplicates"))
    told = object_of(summary)
    if told is None or not isinstance(told.get("kept"), bool):
        return row
    broken = told.get("violations")
    return row | {
        "state": "kept" if told["kept"] else "broken",
        "kind": "good" if told["kept"] else "bad",
        "broken": text_of(", ".join(map(str, broken)) if isinstance(broken, dict) else ""),
        **{name: number_of(told.get(name)) for name in ("as_of_ms", "scheduled", "missing", "duplicates")},
    }


def run_of(findings: bytes) -> Run | None:
    """Return a run by its findings.json; None: that is none."""
    told = object_of(findings)
    if told is None or not isinstance(told.get("summary"), dict) or not isinstance(told.get("checks"), list):
        return None
    summary, ledgers = told["summary"], told.get("ledgers")
    kept = summary.get("kept")
    return Run(
        number_of(told.get("made_ms")),
        tuple(map(text_of, ledgers[:20])) if isinstance(ledgers, list) else (),
        kept if isinstance(kept, bool) else None,
        [
            (text_of(name), _figure(value))
            for name, value in list(summary.items())[:FIGURES_MAX]
            if name != "kept"
        ],
        [_check(one) for one in told["checks"][:CHECKS_MAX] if isinstance(one, dict)],
    )


def check_rows(run: Run, name: str) -> list[Row]:
    """Return a row for each check of a run, whose own folder has this name."""
    return [
        {
            "key": place,
            "check": check.name,
            "promise": check.promise,
            "count": check.count,
            "address": cells.path("reconciliation", name, check.name),
        }
        for place, check in enumerate(run.checks)
    ]


def _check(told: Mapping[str, Any]) -> Check:
    rows = told.get("rows")
    return Check(
        text_of(told.get("check")),
        told.get("promise") is True,
        number_of(told.get("count")) or 0,
        [_row(place, one) for place, one in enumerate(rows[:ROWS_MAX]) if isinstance(one, dict)]
        if isinstance(rows, list)
        else [],
    )


def _row(place: int, told: Mapping[str, Any]) -> Row:
    texts = {name: text_of(told.get(name)) for name in ("id", "topic", "group", "source", "detail")}
    numbers = {name: number_of(told.get(name)) for name in ("due_ms", "at_ms", "index")}
    return {"key": place, **texts, **numbers}


def _figure(value: object) -> str:
    """Return a figure, or those that one has in it; what lies deeper is left out."""
    if not isinstance(value, dict):
        return _plain(value)
    parts = (f"{text_of(name)} {_plain(one)}" for name, one in list(value.items())[:FIGURES_MAX])
    return ", ".join(parts)[:FIGURE_CHARACTERS_MAX] or "none"


def _plain(value: object) -> str:
    if (number := number_of(value)) is not None:
        return f"{number:,}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else text_of(value)
