"""The box in the header: a message by its id, else topics and groups by name, and messages of a key."""

from __future__ import annotations

from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from tarry.client.errors import InvalidId, NotFound, TarryError
from tarry.client.found import FoundMessage
from tarry.console.rendering import access_of, client_of, render
from tarry.console.views.cells import path
from tarry.console.views.search import CHARACTERS_MAX, may_be_id, names_with, topic_and_key
from tarry.console.views.topics import topics_of

MESSAGES_MAX: Final = 100
"""Of a key, and as many of an idempotency key."""


class Keyed(NamedTuple):
    """Messages of a topic that have a key, or an idempotency key."""

    topic: str
    key: str
    messages: list[FoundMessage]
    more: bool
    fault: str
    """Why they cannot be told; empty: they can."""


async def _search(request: Request) -> Response:
    asked, topic = (request.query_params.get(name, "").strip()[:CHARACTERS_MAX] for name in ("q", "topic"))
    look = await access_of(request).watch.look()
    topics = topics_of(look.best)
    names = {one.topic for one in topics}
    if asked and not topic and may_be_id(asked) and asked not in names and await _is_message(request, asked):
        return RedirectResponse(path("message", asked), 303)
    pair = (topic, asked) if topic and asked else topic_and_key(asked, names)
    return render(
        request,
        "found.html",
        look=look,
        asked=asked,
        topic=topic,
        found=names_with(asked, topics) if asked else None,
        keyed=await _keyed(request, *pair) if pair is not None else None,
    )


async def _is_message(request: Request, text: str) -> bool:
    try:
        await access_of(request).producer.get(text)
    except (NotFound, InvalidId):
        return False
    return True


async def _keyed(request: Request, topic: str, key: str) -> Keyed:
    query, found, more = client_of(request).query(), dict[str, FoundMessage](), False
    try:
        for given in ({"key": key}, {"idempotency_key": key}):
            told = await query.find(topic, **given, limit=MESSAGES_MAX)  # type: ignore[arg-type]
            found |= {message.id: message for message in told.messages}
            more = more or bool(told.next)
    except TarryError as error:
        return Keyed(topic, key, [], False, f"{error.reason}: {error.text}")
    return Keyed(topic, key, list(found.values()), more, "")


ROUTES: Final = (Route("/search", _search),)
