"""The query: what waits, what became of a message, and cancels by what messages have in common."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from typing import Unpack

from grpc import aio

from tarry.client.cluster.calls import Calls
from tarry.client.cluster.nodes import Nodes
from tarry.client.errors import error_of_call
from tarry.client.found import FoundPage, find_request
from tarry.client.queries import history
from tarry.client.queries.bulk_cancel import BulkCancel, steps
from tarry.client.queries.forecast import Forecast, ForecastOptions, forecast_of
from tarry.client.queries.forecast import request_of as forecast_request
from tarry.client.queries.life import MessageHistory, MessageLife
from tarry.client.queries.listing import PAGE_MAX, ListedMessage, ListedPage, ListOptions, page_of, request_of
from tarry.client.queries.matching import Matching, filter_of
from tarry.client.results import MessageState
from tarry.proto import tarry_query_pb2 as pb


class Query:
    """Asks what waits. Made by ``Client.query``."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._calls = Calls(nodes)

    async def list_page(
        self, topic: str, *, size: int = 100, cursor: str = "", **only: Unpack[ListOptions]
    ) -> ListedPage:
        """Return a page of a topic's messages, ``size`` at most, up to 1,000; ``cursor``: of the page before.

        First what waits for its due time or a retry, by due time, then what is released, by offset.
        Raises NotFound, NotPermitted, Damaged, and InvalidQuery, also for a property that is given and empty.
        """
        request = request_of(topic, size, cursor, only)
        answer = await self._calls.call(lambda node: node.query.ListMessages, request, changes=False)
        return page_of(answer, only)

    async def list_messages(
        self, topic: str, *, limit: int | None = None, **only: Unpack[ListOptions]
    ) -> AsyncGenerator[ListedMessage, None]:
        """Yield a topic's messages, ``limit`` at most, in the order of ``list_page``, also across leaders.

        What is there all the time, in one state, comes once. Raises as ``list_page``.
        """
        cursor, left = "", limit
        while left is None or left > 0:
            size = PAGE_MAX if left is None else min(PAGE_MAX, left)
            page = await self.list_page(topic, size=size, cursor=cursor, **only)
            for message in page.messages:
                yield message
            left = None if left is None else left - len(page.messages)
            if not (cursor := page.cursor):
                return

    async def life(self, message_id: str) -> MessageLife:
        """Return what a message is now, and to each group of its topic. Linearizable.

        Raises NotFound, InvalidId, Damaged, Overloaded, Unavailable.
        """
        request = pb.GetLifeRequest(id=message_id)
        return MessageLife.of(await self._calls.call(lambda node: node.query.GetLife, request, changes=False))

    async def history(
        self,
        message_id: str,
        *,
        from_ms: int = 0,
        until_ms: int = 0,
        timeout_ms: int = 60_000,
        progress: history.Progress | None = None,
    ) -> MessageHistory:
        """Return what has happened to a message, from the ledgers of all nodes, merged.

        Args:
            from_ms, until_ms: only rows of then or later, and before; 0: no bound.
            timeout_ms: for each node; what it has told by then counts.
            progress: called as nodes look through their ledgers.

        A node that does not answer, or keeps no ledger, is told in ``nodes``. Raises InvalidId, NotPermitted.
        """
        request = pb.ReadHistoryRequest(id=message_id, from_ms=from_ms, until_ms=until_ms)
        return await history.read(self._nodes, request, timeout_ms, progress)

    async def forecast(self, *, address: str = "", **options: Unpack[ForecastOptions]) -> Forecast:
        """Return how many pending messages are due in each second, minute or hour, and how late they will be.

        ``address``: of the node that is to answer, tried once; a follower that hears the leader is within
        50 ms of it. Raises InvalidQuery, NotFound, NotPermitted, Overloaded, Unavailable.
        """
        request = forecast_request(options)
        if not address:
            return forecast_of(
                await self._calls.call(lambda node: node.query.Forecast, request, changes=False)
            )
        try:
            response = await self._nodes.node(address).query.Forecast(
                request, timeout=self._nodes.settings.attempt_ms / 1_000, metadata=self._nodes.metadata
            )
        except aio.AioRpcError as failure:
            raise error_of_call(failure) from failure
        return forecast_of(response)

    async def cancel_matching(
        self, topic: str, *, cursor: str = "", dry_run: bool = False, **only: Unpack[Matching]
    ) -> AsyncGenerator[BulkCancel]:
        """Cancel a topic's pending messages that match, and yield how far that is; the last one is ``done``.

        ``cursor``: of a progress with the same filter, to go on from there; ``dry_run``: only count. Who
        stops asking pauses it: every progress has been done, and what was not told of goes on with the last
        cursor. What is scheduled or rescheduled meanwhile may be among it, or left out. Raises NotFound,
        NotPermitted, and InvalidQuery, also for a property that is given and empty.
        """
        request = pb.CancelMatchingRequest(filter=filter_of(topic, only), cursor=cursor, dry_run=dry_run)
        async for told in steps(self._calls, lambda node: node.query.CancelMatching, request):
            yield told

    async def count_matching(self, topic: str, **only: Unpack[Matching]) -> int:
        """Return how many pending messages of a topic match. Raises as ``cancel_matching``."""
        counted = 0
        async for told in self.cancel_matching(topic, dry_run=True, **only):
            counted = told.matched
        return counted

    async def find(
        self,
        topic: str,
        key: str = "",
        *,
        idempotency_key: str = "",
        due_from_ms: int = 0,
        due_to_ms: int = 0,
        stored_from_ms: int = 0,
        stored_to_ms: int = 0,
        born_from_ms: int = 0,
        born_to_ms: int = 0,
        states: Collection[MessageState] = (),
        limit: int = 100,
        bodies: bool = False,
        begin: str = "",
    ) -> FoundPage:
        """Return a page of the messages of a topic that have a key, as of now (linearizable).

        What was acknowledged before the call is found, while the cluster keeps it: also what was delivered.

        Args:
            key, idempotency_key: one of the two; several may have an idempotency key, one after another.
            due_from_ms, due_to_ms: only what is due from then on, and before then; 0: whenever.
            stored_from_ms, stored_to_ms: only what the cluster took from then on, and before then.
            born_from_ms, born_to_ms: only what was sent from then on, and before then, by producers' clocks.
                With one of these four, messages that do not have the time are not found.
            states: only what is in one of these; none given: in any.
            limit: messages of the page, 1,000 at most.
            bodies: return bodies, tags, keys and properties, too.
            begin: ``next`` of the page before.

        Raises NotFound, NotPermitted, InvalidQuery; Unavailable with KEYS_INCOMPLETE while the leader builds
        its index of keys.
        """
        request = find_request(
            topic,
            key,
            idempotency_key=idempotency_key,
            due_from_ms=due_from_ms,
            due_to_ms=due_to_ms,
            stored_from_ms=stored_from_ms,
            stored_to_ms=stored_to_ms,
            born_from_ms=born_from_ms,
            born_to_ms=born_to_ms,
            states=states,
            limit=limit,
            bodies=bodies,
            begin=begin,
        )
        response = await self._calls.call(lambda node: node.query.FindByKey, request, changes=False)
        return FoundPage.of(response)
