"""Messages that the application lets lapse: they come again to somebody, and their credit is free."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tarry.client import aio
from tarry.client.consumers.lapses import Lapses
from tarry.node.config import TransactionSettings
from tests.client.transactions.test_transactions import play
from tests.node.lone_leader import Leader

LEASE_S = 10.0


def test_what_the_application_has_for_longer_than_a_lease_has_lapsed() -> None:
    lapses = Lapses()
    assert lapses.look({3: {1, 2, 7}}, [(3, [7])], LEASE_S, 0.0) == []
    assert lapses.look({3: {1, 7, 8}}, [], LEASE_S, 12.4) == []  # late by a quarter at most
    assert lapses.look({3: {1, 7, 8}}, [], LEASE_S, 12.5) == [(3, [1])]  # 2 is settled, 7 had waited
    assert lapses.look({3: {7, 8}}, [], LEASE_S, 25.0) == [(3, [7, 8])]
    assert lapses.look({}, [], LEASE_S, 37.5) == []


def test_what_the_application_has_extended_lapses_once_that_is_over() -> None:
    lapses = Lapses()
    assert lapses.look({3: {1, 2}}, [], LEASE_S, 0.0) == []
    lapses.extended(3, [1], 30.0)
    assert lapses.look({3: {1, 2}}, [], LEASE_S, 12.5) == [(3, [2])]
    assert lapses.look({3: {1}}, [], LEASE_S, 25.0) == []
    assert lapses.look({3: {1}}, [], LEASE_S, 37.5) == [(3, [1])]


def test_a_lease_that_becomes_shorter_lasts_for_what_was_given_before() -> None:
    lapses = Lapses()
    assert lapses.look({3: {1}}, [], LEASE_S, 0.0) == []
    assert lapses.look({3: {1}}, [], 1.0, 12.0) == []
    assert lapses.look({3: {1}}, [], 1.0, 12.5) == [(3, [1])]


def test_a_message_that_is_never_settled_keeps_no_other_from_coming(tmp_path: Path) -> None:
    """As with SQS, a handler that fails may leave a message to the end of its lease."""

    async def act(client: aio.Client, lead: Leader, _: str) -> None:
        await client.producer().schedule_batch("orders", [b"poison", b"good"], delay_ms=0)
        async with asyncio.timeout(30), client.consumer("orders", "g", credit=1, lease_ms=200) as consumer:
            first = await anext(consumer)
            began_s = time.monotonic()
            second = await anext(consumer)
            assert {first.body, second.body} == {b"poison", b"good"}
            assert time.monotonic() - began_s >= 0.2
            assert not consumer.holds(first)
            assert consumer.lost == 1
            assert await second.ack() is aio.AckOutcome.OK
            assert await first.ack() is aio.AckOutcome.STALE

    play(tmp_path, act, TransactionSettings())
