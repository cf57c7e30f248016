"""Cells of a message's life: what it is to each group, and its history."""

from __future__ import annotations

from typing import Final

from tarry.client.cli.history import detail_text
from tarry.client.queries.life import HistoryRow, MessageInGroup
from tarry.console.views import cells

GROUP_COLUMNS: Final = ("Group", "State", "Why", "Delivery", "Consumer", "Until", "Before it", "Consumers")
ROW_COLUMNS: Final = (
    "Time", "What", "Group", "Consumer", "Delivery", "Detail", "Term", "Index", "Nodes",
)  # fmt: skip


def group_cells(one: MessageInGroup) -> tuple[object, ...]:
    """Return the cells of one group, by GROUP_COLUMNS."""
    return (
        one.group,
        one.state.value.replace("_", " "),
        one.why,
        one.attempt or "",
        one.consumer,
        cells.time(one.until_ms) if one.until_ms else "",
        "" if one.before is None else f"{one.before:,}",
        f"{one.consumers:,}",
    )


def row_cells(row: HistoryRow) -> tuple[object, ...]:
    """Return the cells of one row of a history, by ROW_COLUMNS."""
    details = [detail_text(row), "maybe a duplicate" if row.maybe_duplicate else ""]
    return (
        cells.time(row.at_ms),
        row.kind,
        row.group,
        row.consumer,
        "" if row.attempt is None else row.attempt,
        ", ".join(filter(None, details)),
        row.term,
        row.index,
        " ".join(row.sources),
    )
