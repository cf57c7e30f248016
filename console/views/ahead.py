"""The next hour of the wheel: how many messages are due in each second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

import typer

from tarry.client.cli.times import parse_time_ms, time_text
from tarry.console.views import cells
from tarry.console.views.table import Column, Row

SPANS: Final = {"60": "a minute", "300": "5 minutes", "900": "15 minutes", "3600": "an hour"}
SPAN: Final = "300"
COLUMNS: Final = (
    Column("at_ms", "Due in the second of", show=lambda row: cells.time(row["at_ms"])),
    Column("pending", "Messages", number=True),
)


@dataclass(frozen=True, slots=True)
class Ahead:
    """Messages due in a span from now on, and in the range that the visitor has chosen."""

    start_ms: int
    """The present second."""
    seconds: Sequence[int]
    """Messages due, by second."""
    first: int
    """Second of the chosen range, from the start; without one it is the whole span."""
    last: int
    """Behind the last."""
    chosen: bool
    over: bool = False
    """The chosen range ends before now."""
    beyond: bool = False
    """It ends behind the hour that is known."""

    @property
    def range_ms(self) -> tuple[int, int]:
        """Begin and end of the range."""
        return self.start_ms + self.first * 1_000, self.start_ms + self.last * 1_000

    @property
    def total(self) -> int:
        """Messages due in the range."""
        return sum(self.seconds[self.first : self.last])

    @property
    def most(self) -> int:
        """Messages of the fullest second of the range."""
        return max(self.seconds[self.first : self.last], default=0)

    def rows(self) -> list[Row]:
        """Return a row for each second of the range in which something is due."""
        return [
            {"at_ms": self.start_ms + second * 1_000, "pending": self.seconds[second]}
            for second in range(self.first, self.last)
            if self.seconds[second]
        ]


def ahead_of(pending: Sequence[int], now_ms: int, values: Mapping[str, Any]) -> Ahead:
    """Return what the address's ``span``, ``from`` and ``to`` ask for, times or ms since the epoch.

    A range that ends behind the span has a longer one, as long as it is known.
    """
    start_ms, span = now_ms - now_ms % 1_000, int(span_of(values))
    from_ms, to_ms = _time(values.get("from")), _time(values.get("to"))
    chosen = from_ms is not None and to_ms is not None and from_ms < to_ms
    if not chosen or from_ms is None or to_ms is None:
        seconds = pending[:span]
        return Ahead(start_ms, seconds, 0, len(seconds), False)
    end = -((start_ms - to_ms) // 1_000)
    seconds = pending[: next((each for each in map(int, SPANS) if each >= max(end, span)), len(pending))]
    first = min(max(0, (from_ms - start_ms) // 1_000), len(seconds))
    last = min(max(first, end), len(seconds))
    beyond = 0 < len(pending) < end
    return Ahead(start_ms, seconds, first, last, True, to_ms <= start_ms, beyond)


def address_of(from_ms: int, to_ms: int, span: str) -> str:
    """Return the address of the page with a range."""
    return "/ahead?" + urlencode(
        {"span": span if span in SPANS else SPAN, "from": time_text(from_ms), "to": time_text(to_ms)}
    )


def span_of(values: Mapping[str, Any]) -> str:
    """Return the number of seconds that the address asks for."""
    return values.get("span", SPAN) if values.get("span") in SPANS else SPAN


def _time(text: str | None) -> int | None:
    if text is None or len(text) > 40:
        return None
    try:
        return parse_time_ms(text)
    except (typer.BadParameter, OverflowError):
        return None
