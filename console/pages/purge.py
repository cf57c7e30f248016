"""Purge of a topic: counted first, then done a bounded time a request, with a page that asks to go on."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tarry.client.queries.bulk_cancel import BulkCancel
from tarry.console.guard import form_of
from tarry.console.rendering import client_of, done, review
from tarry.console.views.cells import path

REQUEST_S: Final = 5.0
"""Time for which one request counts, or cancels."""


async def _within(steps: AsyncGenerator[BulkCancel]) -> BulkCancel:
    """Return how far it comes in the time of a request."""
    ends_s, last = time.monotonic() + REQUEST_S, None
    async with aclosing(steps):
        async for told in steps:
            last = told
            if time.monotonic() > ends_s:
                break
    assert last is not None
    return last


async def _purge(request: Request) -> Response:
    form, topic = await form_of(request), request.path_params["topic"]
    operator, back = client_of(request).operator(), path("topics", topic)
    if not form.get("confirmed"):
        found = await _within(operator.purge_topic(topic, dry_run=True))
        least = "" if found.done else "at least "
        sentences = [
            f"All that no consumer has been given is cancelled: {least}{found.matched:,} pending and ready "
            "messages and retries.",
            "The topic, its settings and groups stay; what consumers have in hand does, too.",
            "Nothing brings the messages back.",
        ]
        return review(request, f"Purge {topic}", sentences, {}, button="Purge it", back=back, danger=True)
    made = await _within(operator.purge_topic(topic, cursor=form.get("cursor", "")))
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
