"""Event streams where no node answers, or nothing comes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tarry.client.aio import AckOutcome, Client
from tarry.client.consumers.unsettled import Verdict
from tarry.client.errors import NotPermitted
from tarry.gateway.handle import Holder
from tarry.gateway.http.consuming import _is_of
from tarry.gateway.http.event_stream import EventStream
from tarry.proto.reasons import Reason
from tests.gateway.conftest import NOBODY


async def test_a_verdict_that_no_node_answers_is_unknown_at_the_deadline() -> None:
    client = Client(NOBODY)
    consumer = client.consumer("t", "g", credit=1)
    consumer._unsettled.received(0, [7])  # as of a node that has died since
    access: Any = SimpleNamespace(client=client)
    stream = EventStream(consumer, access)
    async with asyncio.timeout(10):
        assert await stream.settle(Verdict(0), [7]) == [AckOutcome.UNKNOWN]
        assert await stream.settle(Verdict(0), [7]) == [AckOutcome.STALE]  # given up by the first
    await client.close()


async def test_a_handle_of_another_incarnation_leaves_the_message_that_has_its_offset_now() -> None:
    client = Client(NOBODY)
    consumer = client.consumer("t", "g", credit=1)
    consumer._begin_anew(7)
    consumer._unsettled.received(0, [7])
    access: Any = SimpleNamespace(client=client)
    stream = EventStream(consumer, access)
    stream._lease((0, 7, 7), 1_000)
    for verdict in (Verdict(0, incarnation=0), Verdict.extending(0, 60_000, incarnation=0)):
        assert await stream.settle(verdict, [7]) == [AckOutcome.STALE]
    assert 0 < stream._next_lapse_s() < 3  # it is still asked about, at its time
    await client.close()


@pytest.mark.parametrize(("topic", "is_its"), [("orders", True), ("orders*", True), ("bills", False)])
def test_what_a_stream_of_several_topics_was_sent_is_settled_by_it(topic: str, is_its: bool) -> None:
    """Else its credit is used until the leases are over."""
    stream: Any = SimpleNamespace(consumer=Client(NOBODY).consumer(topic, "g", credit=1))
    assert _is_of(stream, Holder("orders", "g", "c", 0, 0)) == is_its
    assert not _is_of(stream, Holder("orders", "another", "c", 0, 0))


class Quiet:
    """A consumer to which nothing comes, or of which the cluster will have nothing."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    async def __anext__(self) -> Any:
        if self._error is not None:
            raise self._error
        await asyncio.Event().wait()


async def lines(consumer: Any, ends: int) -> list[bytes]:
    """Return the first texts of a stream."""
    stream = EventStream(consumer, None)  # type: ignore[arg-type]
    events = stream.events(None, asyncio.Event(), last_ms=60_000, keep_alive_ms=1)  # type: ignore[arg-type]
    async with asyncio.timeout(10):
        found = [await anext(events) for _ in range(ends)]
    await events.aclose()
    return found


async def test_a_stream_to_which_nothing_comes_is_kept_alive() -> None:
    assert await lines(Quiet(), 3) == [b"retry: 1000\n\n", *[b": still here\n\n"] * 2]


async def test_what_the_cluster_refuses_is_the_last_event_of_a_stream() -> None:
    refused = NotPermitted(Reason.PERMISSION_DENIED, "the token may not consume")
    _, told = await lines(Quiet(refused), 2)
    assert told.startswith(b"event: error\ndata: {")
    assert b'"reason":"PERMISSION_DENIED"' in told.replace(b" ", b"")
