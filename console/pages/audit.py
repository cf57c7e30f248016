"""The page *Audit*: which operators' calls the nodes have recorded."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tarry.client.operators.audit_log import READING, AuditTrail
from tarry.console.rendering import access_of, client_of, render
from tarry.console.views.audit import COLUMNS, call_rows, choice_of

LINES: Final = 200
"""Of each node on a page: two for most calls."""


async def _audit(request: Request) -> Response:
    choice = choice_of(request.query_params)
    look = await access_of(request).watch.look()
    trail = AuditTrail((), 0, (), {}, 0)
    if not choice.faults:
        trail = (
            await client_of(request)
            .operator()
            .audit(
                from_ms=choice.from_ms,
                to_ms=choice.to_ms,
                token=choice.who,
                method=choice.what,
                lines_max=LINES,
                readings=choice.what == READING,
            )
        )
    return render(
        request,
        "audit.html",
        look=look,
        choice=choice,
        columns=COLUMNS,
        rows=call_rows(trail.lines, choice.what),
        trail=trail,
        older=choice.older(trail.older_to_ms) if trail.older_to_ms else "",
        status=400 if choice.faults else 200,
    )


ROUTES: Final = (Route("/audit", _audit),)
