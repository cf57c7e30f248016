"""Event streams where no node answers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from tarry.client.aio import AckOutcome, Client
from tarry.client.consumers.unsettled import Verdict
from tarry.gateway.http.event_stream import EventStream
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
