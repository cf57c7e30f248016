"""The page *Ahead*: the wheel as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tarry.console.pages.ahead_range import counts
from tarry.console.rendering import access_of, live, render
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


async def _ahead(request: Request) -> Response:
    """Return the page; what is due in a chosen range by topic is counted once, as it is opened."""
    look = await access_of(request).watch.look()
    values = dict(await values_of(request, look))
    ahead = values["ahead"]
    in_range = await counts(request, look, ahead.range_ms) if ahead.chosen and not ahead.over else []
    return render(request, "ahead.html", look=look, in_range=in_range, **values)


ROUTES: Final = (
    Route("/ahead", _ahead),
    Route("/live/ahead", live("ahead_live.html", values_of)),
)
