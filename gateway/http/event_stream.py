"""An event stream: messages as server-sent events while they fit into its credit.

consumer ──► sent to the caller ──► settled by a request here ─────────► its credit is free
                    │ settled at another gateway, or its lease is over ──► asked about then
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from tarry.client.aio import AckOutcome, Consumer, Message
from tarry.client.consumers.unsettled import Verdict
from tarry.client.errors import TarryError
from tarry.gateway.http import strict_json
from tarry.gateway.http.clients import Access
from tarry.gateway.http.errors import fields_of_error

LAPSE_S: Final = 1.0
"""How long behind the end of a lease the cluster is asked whether it has ended."""

Place = tuple[int, int, int | None]
"""Queue, offset, and the incarnation of the cluster that gave it."""


class EventStream:
    """Messages of one consumer that a caller has been sent."""

    def __init__(self, consumer: Consumer, access: Access) -> None:
        self.consumer, self.access = consumer, access
        self._leased_until_s: OrderedDict[Place, float] = OrderedDict()

    async def settle(self, verdict: Verdict, offsets: Sequence[int]) -> list[AckOutcome]:
        """Give a verdict on deliveries of this stream, which frees its credit.

        ``UNKNOWN`` where no node has answered by the client's deadline: it is sent again, and may count.
        """
        try:
            async with asyncio.timeout(self.access.client.settings.deadline_ms / 1_000):
                outcomes = await self.consumer.settle_many(verdict, offsets)
        except TimeoutError:  # the stream itself waits for a node for as long as it lasts
            outcomes = [AckOutcome.UNKNOWN] * len(offsets)
        for offset, outcome in zip(offsets, outcomes, strict=True):
            if outcome is AckOutcome.STALE:  # of another incarnation it names what is another message here
                continue
            if verdict.extend_ms is None:
                self._leased_until_s.pop((verdict.queue, offset, verdict.incarnation), None)
            elif (place := (verdict.queue, offset, verdict.incarnation)) in self._leased_until_s:
                self._lease(place, verdict.extend_ms)
        return outcomes

    async def events(
        self,
        told: Callable[[Message], Awaitable[bytes]],
        until: asyncio.Event,
        last_ms: int,
        keep_alive_ms: int,
    ) -> AsyncGenerator[bytes]:
        """Yield the text of the stream until the event is set, or ``last_ms`` have passed."""
        ends_s = time.monotonic() + last_ms / 1_000
        yield b"retry: 1000\n\n"
        waiting: asyncio.Task[Message] | None = None
        ended = asyncio.create_task(until.wait())
        try:
            while (left_s := ends_s - time.monotonic()) > 0 and not until.is_set():
                waiting = waiting or asyncio.ensure_future(anext(self.consumer))
                self._ask_about_lapsed()
                timeout_s = min(left_s, keep_alive_ms / 1_000, self._next_lapse_s())
                await asyncio.wait({waiting, ended}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
                if not waiting.done():
                    yield b": still here\n\n"
                    continue
                message, waiting = waiting.result(), None
                place = message.queue, message.offset, message.batch.incarnation
                self._lease(place, self.consumer.lease_ms)
                yield event("message", await told(message))
            reason = "GATEWAY_ENDING" if until.is_set() else "DURATION_OVER"
            yield event("end", strict_json.serialize({"reason": reason}))
        except TarryError as error:
            yield event("error", strict_json.serialize({"error": fields_of_error(error)[1]}))
        except StopAsyncIteration:
            return
        finally:
            for task in filter(None, (waiting, ended)):
                task.cancel()

    def _lease(self, place: Place, lease_ms: int) -> None:
        self._leased_until_s[place] = time.monotonic() + lease_ms / 1_000

    def _next_lapse_s(self) -> float:
        if not self._leased_until_s:
            return float("inf")
        return max(0.05, min(self._leased_until_s.values()) + LAPSE_S - time.monotonic())

    def _ask_about_lapsed(self) -> None:
        """Extend what should be over: what is in hand no more is stale, and uses no credit from then on."""
        now_s = time.monotonic()
        lapsed = [place for place, until_s in self._leased_until_s.items() if until_s + LAPSE_S <= now_s]
        by_queue: dict[tuple[int, int | None], list[Place]] = {}
        for place in lapsed:
            del self._leased_until_s[place]
            queue, _, incarnation = place
            by_queue.setdefault((queue, incarnation), []).append(place)
        for (queue, incarnation), places in by_queue.items():
            verdict = Verdict.extending(queue, self.consumer.lease_ms, incarnation=incarnation)
            asked = self.consumer.settle_many(verdict, [offset for _, offset, _ in places])
            asked.add_done_callback(partial(self._asked, places))

    def _asked(self, places: list[Place], done: asyncio.Future[list[AckOutcome]]) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        for place, outcome in zip(places, done.result(), strict=True):
            if outcome is AckOutcome.OK:  # extended at another gateway, so still in hand
                self._lease(place, self.consumer.lease_ms)


def event(kind: str, data: bytes) -> bytes:
    """Return one event; its data is one line of JSON."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), data)
