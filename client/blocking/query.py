"""The blocking query."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from tarry.client.blocking.loop_thread import LoopThread
from tarry.client.blocking.twin import blocking
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
