"""A range of *Ahead*: what is due in it by topic, and the cancel of what a topic has in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tarry.client.cli.times import time_text
from tarry.client.errors import TarryError
from tarry.client.queries.bulk_cancel import BulkCancel
from tarry.client.queries.query import Query
from tarry.console.forms import read_time
from tarry.console.guard import form_of
from tarry.console.jobs import Job, Work
from tarry.console.pages.jobs import start
from tarry.console.rendering import access_of, client_of, review
from tarry.console.views.ahead import address_of
from tarry.console.views.topics import topics_of
from tarry.console.watch import Look

TOPICS_MAX: Final = 20
"""Counted in a range: those with most pending. A count costs a node some 10 ms for each million messages."""
AT_ONCE: Final = 2
COUNT_S: Final = 5.0
"""For all of them, and for the dry run of a cancel; what is not counted by then is said not to be."""

Counted = tuple[str, int | None]
"""A topic, and how many of its messages are due in the range; None: not known."""


async def counts(request: Request, look: Look, range_ms: tuple[int, int]) -> list[Counted]:
    """Return how many messages of each topic are due in a range of whole seconds."""
    topics = sorted(topics_of(look.best), key=lambda one: (-one.pending, one.topic))
    names = [one.topic for one in topics if one.pending][:TOPICS_MAX]
    query, few = client_of(request).query(), asyncio.Semaphore(AT_ONCE)
    found = dict[str, int]()

    async def count(topic: str) -> None:
        async with few:
            from_ms, to_ms = range_ms
            told = await query.forecast(topic=topic, from_ms=from_ms, buckets=(to_ms - from_ms) // 1_000)
            ends = zip(range(told.first_ms, to_ms, told.bucket_ms), told.counts, strict=False)
            found[topic] = sum(pending for at_ms, pending in ends if at_ms >= from_ms)

    if range_ms[0] < range_ms[1]:
        tasks = [asyncio.create_task(count(name)) for name in names]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=COUNT_S)
            for task in late:
                task.cancel()
            for error in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(error, BaseException) and not isinstance(
                    error, TarryError | asyncio.CancelledError
                ):
                    raise error
    return sorted(((name, found.get(name)) for name in names), key=lambda one: -(one[1] or 0))


async def within(steps: AsyncGenerator[BulkCancel], seconds: float) -> BulkCancel:
    """Return how far it comes in that time."""
    ends_s, last = time.monotonic() + seconds, None
    async with aclosing(steps):
        async for told in steps:
            last = told
            if time.monotonic() > ends_s:
                break
    assert last is not None
    return last


async def _cancel(request: Request) -> Response:
    form, access = await form_of(request), access_of(request)
    topic, from_ms, to_ms = form.get("topic", "").strip(), _time(form, "from"), _time(form, "to")
    if not topic or from_ms >= to_ms:
        raise HTTPException(400, "name a topic, and a range that ends behind its begin")
    back = address_of(from_ms, to_ms, form.get("span", ""))
    query = access.client.query()
    steps = query.cancel_matching(topic, dry_run=True, due_from_ms=from_ms, due_to_ms=to_ms)
    if not form.get("confirmed"):
        found = await within(steps, COUNT_S)
        least = "" if found.done else "At least "
        sentences = [
            f"{least}{found.matched:,} pending messages of {topic} are due from {time_text(from_ms)} on and "
            f"before {time_text(to_ms)}.",
            "They are cancelled: no consumer gets them. What is due by then is delivered.",
            "Nothing brings them back.",
        ]
        return review(
            request, f"Cancel in {topic}", sentences, form, button="Cancel them", back=back, danger=True
        )
    await within(steps, 0)  # what the visitor may not do is refused here, and is no job
    return start(access, f"Cancel in {topic}", back, cancel(query, topic, (from_ms, to_ms)))


def _time(form: dict[str, str], name: str) -> int:
    try:
        return read_time(form.get(name, ""))
    except ValueError as error:
        raise HTTPException(400, f"{name}: {error}") from None


def cancel(query: Query, topic: str, range_ms: tuple[int, int], cursor: str = "") -> Work:
    """Return the work that cancels what a topic has in a range; it stops between two calls."""

    async def work(job: Job) -> bool:
        from_ms, to_ms = range_ms
        steps = query.cancel_matching(topic, cursor=cursor, due_from_ms=from_ms, due_to_ms=to_ms)
        job.more = cancel(query, topic, range_ms, cursor)
        async with aclosing(steps):
            async for told in steps:
                job.tell(told.looked_at, told.total, sentences_of(told))
                job.more = None if told.done else cancel(query, topic, range_ms, told.cursor)
                if job.stopping:
                    return told.done
        return True

    return work


def sentences_of(told: BulkCancel) -> Sequence[str]:
    """Return what a cancel has done so far."""
    sentences = [f"{told.cancelled:,} messages are cancelled."]
    if told.released:
        sentences.append(f"{told.released:,} came due before: they are delivered.")
    if told.unreadable:
        sentences.append(f"{told.unreadable:,} cannot be read now, and stay.")
    if told.not_found:
        sentences.append(f"{told.not_found:,} were gone by then.")
    return sentences


ROUTES: Final = (Route("/ahead/cancel", _cancel, methods=["POST"]),)
