"""The page *Ahead*: the wheel as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.routing import Route

from tarry.console.rendering import live, page
from tarry.console.views.ahead import COLUMNS, SPANS, ahead_of, span_of
from tarry.console.views.table import Column, table_of
from tarry.console.views.topics import TOPIC_COLUMNS, topic_rows
from tarry.console.watch import Look

TOPICS: Final[tuple[Column, ...]] = TOPIC_COLUMNS[:3]


async def values_of(request: Request, look: Look) -> Mapping[str, Any]:
    """Return what the page shows of a look."""
    values, best = request.query_params, look.best
    ahead = ahead_of(best.pending_ahead, best.now_ms, values) if best is not None else ahead_of((), 0, values)
    return {
        "ahead": ahead,
        "span": span_of(values),
        "spans": SPANS,
        "seconds": table_of("seconds", "By second", COLUMNS, ahead.rows(), values, "at_ms"),
        "topics": table_of(
            "topics", "Pending by topic, whenever due", TOPICS, topic_rows(look), values, "-pending", "topic-"
        ),
        "pending": best.pending if best is not None else 0,
    }


ROUTES: Final = (
    Route("/ahead", page("ahead.html", values_of)),
    Route("/live/ahead", live("ahead_live.html", values_of)),
)
