"""The page *Messages* of a topic: what waits there, without taking any of it."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tarry.client.aio import ListedState
from tarry.client.queries.listing import ListedPage
from tarry.console.rendering import access_of, client_of, render
from tarry.console.views.messages import choice_of, notes_of

ROWS: Final = 50
"""Of a page."""
LOOKS_MAX: Final = 5
"""Pages that the cluster is asked for until one of them has a message: what is rare may take many."""


async def _messages(request: Request) -> Response:
    topic, choice = request.path_params["topic"], choice_of(request.query_params)
    look = await access_of(request).watch.look()
    listed = ListedPage((), "", 0)
    if not choice.faults:
        query, cursor = client_of(request).query(), choice.cursor
        for _ in range(LOOKS_MAX):
            listed = await query.list_page(topic, size=ROWS, cursor=cursor, **choice.options)
            cursor = listed.cursor
            if listed.messages or not cursor:
                break
    return render(
        request,
        "messages.html",
        look=look,
        topic=topic,
        choice=choice,
        states=list(ListedState),
        rows=[(message, notes_of(message)) for message in listed.messages],
        following=choice.address(listed.cursor) if listed.cursor else "",
        looked_to_ms=listed.looked_to_ms,
        page="/topics",
        status=400 if choice.faults else 200,
    )


ROUTES: Final = (Route("/messages/{topic}", _messages),)
