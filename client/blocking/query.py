"""The blocking query."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from tarry.client.blocking.loop_thread import LoopThread
from tarry.client.blocking.twin import blocking
from tarry.client.queries.bulk_cancel import BulkCancel, Matching
from tarry.client.queries.listing import ListedMessage, ListOptions
from tarry.client.queries.query import Query as AsyncQuery


class Query:
    """Asks what waits. Made by ``Client.query``."""

    def __init__(self, query: AsyncQuery, thread: LoopThread) -> None:
        self._twin = query
        self._thread = thread

    list_page = blocking(AsyncQuery.list_page)

    def list_messages(
        self, topic: str, *, limit: int | None = None, **only: Unpack[ListOptions]
    ) -> Iterator[ListedMessage]:
        """Yield a topic's messages, ``limit`` at most, in the order of ``list_page``, also across leaders.

        What is there all the time, in one state, comes once. Raises as ``list_page``.
        """
        messages = self._twin.list_messages(topic, limit=limit, **only)
        try:
            while (message := self._thread.run(anext(messages, None))) is not None:
                yield message
        finally:
            self._thread.run(messages.aclose())

    life = blocking(AsyncQuery.life)
    history = blocking(AsyncQuery.history)
    forecast = blocking(AsyncQuery.forecast)
    count_matching = blocking(AsyncQuery.count_matching)

    def cancel_matching(
        self, topic: str, *, cursor: str = "", dry_run: bool = False, **only: Unpack[Matching]
    ) -> Iterator[BulkCancel]:
        """Cancel a topic's pending messages that match, and yield how far that is; the last one is ``done``.

        ``cursor``: of a progress with the same filter, to go on from there; ``dry_run``: only count. Who
        stops asking pauses it: every progress has been done, and what was not told of goes on with the last
        cursor. Messages scheduled meanwhile may be among it. Raises NotFound, NotPermitted, InvalidSetting.
        """
        parts = self._twin.cancel_matching(topic, cursor=cursor, dry_run=dry_run, **only)
        try:
            while (told := self._thread.run(anext(parts, None))) is not None:
                yield told
        finally:
            self._thread.run(parts.aclose())

    find = blocking(AsyncQuery.find)
