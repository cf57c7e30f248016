"""The blocking query."""

from __future__ import annotations

from tarry.client.blocking.loop_thread import LoopThread
from tarry.client.queries.query import Query as AsyncQuery


class Query:
    """Asks what waits. Made by ``Client.query``."""

    def __init__(self, query: AsyncQuery, thread: LoopThread) -> None:
        self._twin = query
        self._thread = thread
