"""The blocking query."""

from __future__ import annotations

from tarry.client.blocking.loop_thread import LoopThread
from tarry.client.blocking.twin import blocking, iterating
from tarry.client.queries.query import Query as AsyncQuery


class Query:
    """Asks what waits. Made by ``Client.query``."""

    def __init__(self, query: AsyncQuery, thread: LoopThread) -> None:
        self._twin = query
        self._thread = thread

    list_page = blocking(AsyncQuery.list_page)

    list_messages = iterating(AsyncQuery.list_messages)

    life = blocking(AsyncQuery.life)
    history = blocking(AsyncQuery.history)
    forecast = blocking(AsyncQuery.forecast)
    count_matching = blocking(AsyncQuery.count_matching)

    cancel_matching = iterating(AsyncQuery.cancel_matching)

    find = blocking(AsyncQuery.find)
