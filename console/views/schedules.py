"""Rows and cells about schedules that recur."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from markupsafe import Markup

from tarry.client.cli.recurring import timing_text
from tarry.client.recurring.schedule import Fire, FireOutcome, NextFires, RecurringSchedule
from tarry.console.views import cells
from tarry.console.views.table import Column, Row

COLUMNS: Final = (
    Column("name", "Schedule", show=lambda row: cells.link(row["name"], "schedules", row["name"])),
    Column("topic", "Topic", show=lambda row: cells.link(row["topic"], "topics", row["topic"])),
    Column("timing", "Fires"),
    Column("state", "State", show=lambda row: state_badge(row["state"])),
    Column("next_ms", "Next", number=True, show=lambda row: cells.time(row["next_ms"] or 0)),
    Column("last_ms", "Last fire", number=True, show=lambda row: cells.time(row["last_ms"] or 0)),
    Column("fired", "Fired", number=True),
    Column("triggered", "Triggered", number=True),
    Column("skipped", "Skipped", number=True),
    Column("missed", "Missed", number=True),
)
FIRE_COLUMNS: Final = ("Fire", "Outcome", "Message", "Due", "Fires")
NEXT_COLUMNS: Final = ("Fire", "In its zone")
_KINDS: Final = {"active": "good", "waiting": "warn", "paused": "warn", "ended": "plain"}
_OUTCOMES: Final = {
    FireOutcome.FIRED: "good",
    FireOutcome.TRIGGERED: "good",
    FireOutcome.SKIPPED: "warn",
    FireOutcome.MISSED: "bad",
}


def schedule_rows(schedules: Iterable[RecurringSchedule]) -> list[Row]:
    """Return a row for each schedule."""
    return [
        {
            "name": one.name,
            "topic": one.spec.topic,
            "timing": timing_text(one.spec.timing),
            "state": one.state,
            "next_ms": one.next_ms,
            "last_ms": one.history[0].fire_ms if one.history else None,
            "fired": one.fired,
            "triggered": one.triggered,
            "skipped": one.skipped,
            "missed": one.missed,
        }
        for one in schedules
    ]


def state_badge(state: str) -> Markup:
    """Return a schedule's state, set off."""
    return cells.badge(state, _KINDS[state])


def fire_cells(fire: Fire) -> tuple[object, ...]:
    """Return the cells of a fire, by FIRE_COLUMNS."""
    return (
        cells.time(fire.fire_ms),
        cells.badge(fire.outcome.value, _OUTCOMES.get(fire.outcome, "plain")),
        cells.link(fire.id, "message", fire.id) if fire.id else "",
        cells.time(fire.due_ms) if fire.due_ms else "",
        f"{fire.fires:,}",
    )


def next_cells(fires: NextFires) -> list[tuple[object, ...]]:
    """Return the cells of each fire to come, by NEXT_COLUMNS."""
    return [(cells.time(at_ms), local) for at_ms, local in zip(fires.times_ms, fires.local, strict=True)]
