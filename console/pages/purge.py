"""Purge of a topic: counted first, then done a bounded time a request, with a page that asks to go on."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tarry.console.guard import form_of
from tarry.console.pages.ahead_range import within
from tarry.console.rendering import client_of, done, review
from tarry.console.views.cells import path

REQUEST_S: Final = 5.0
"""Time for which one request counts, or cancels."""


async def _purge(request: Request) -> Response:
    form, topic = await form_of(request), request.path_params["topic"]
    operator, back = client_of(request).operator(), path("topics", topic)
    if not form.get("confirmed"):
        found = await within(operator.purge_topic(topic, dry_run=True), REQUEST_S)
        least = "" if found.done else "at least "
        sentences = [
            f"All that no consumer has been given is cancelled: {least}{found.matched:,} pending and ready "
            "messages and retries.",
            "The topic, its settings and groups stay; what consumers have in hand does, too.",
            "Nothing brings the messages back.",
        ]
        return review(request, f"Purge {topic}", sentences, {}, button="Purge it", back=back, danger=True)
    made = await within(operator.purge_topic(topic, cursor=form.get("cursor", "")), REQUEST_S)
    sentences = [
        f"{made.cancelled:,} pending and {made.ready:,} ready messages and {made.retries:,} retries are "
        f"cancelled; {made.in_hand:,} messages stay with consumers."
    ]
    if made.done:
        return done(request, "Purged", sentences, back)
    sentences.append(f"That is not all: {made.looked_at:,} of {made.total:,} places have been looked at.")
    fields = {"cursor": made.cursor}
    return review(request, f"Go on with {topic}", sentences, fields, button="Go on", back=back, danger=True)


ROUTES: Final = (Route("/topics/{topic}/purge", _purge, methods=["POST"]),)
