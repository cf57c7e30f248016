"""The page *Now*: nodes, rates, lateness, and what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.routing import Route

from tarry.console.rendering import live, page
from tarry.console.views.alarms import alarms
from tarry.console.views.cluster import COLUMNS, node_rows
from tarry.console.views.table import table_of
from tarry.console.watch import Look


async def values_of(request: Request, look: Look) -> Mapping[str, Any]:
    """Return what the page shows of a look."""
    columns = list(zip(*look.history, strict=True)) or [()] * 6
    return {
        "alarms": alarms(look.answers, look.best),
        "nodes": table_of("nodes", "Nodes", COLUMNS, node_rows(look), request.query_params, "node"),
        "rate": look.history[-1].released_per_s if look.best is not None and look.history else None,
        "history": dict(
            zip(("at_ms", "pending", "overdue", "rate", "p50_ms", "p99_ms"), map(list, columns), strict=True)
        ),
    }


ROUTES: Final = (
    Route("/", page("now.html", values_of)),
    Route("/live/now", live("now_live.html", values_of)),
)
