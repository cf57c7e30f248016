"""Messages that the application lets lapse: they come again to somebody, and their credit is free."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tarry.client import aio
from tarry.client.consumers.lapses import Lapses
from tarry.client.consumers.unsettled import Unsettled, Verdict
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


def test_what_waits_to_be_handed_out_has_not_lapsed_though_it_did_not_wait_at_the_look_before() -> None:
    lapses = Lapses()
    assert lapses.look({3: {1}}, [], LEASE_S, 0.0) == []  # on its way from one buffer to another
    assert lapses.look({3: {1}}, [(3, [1])], LEASE_S, 12.5) == []


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


def test_what_has_lapsed_may_be_settled_and_its_credit_is_given_back_once() -> None:
    """Its lease may be longer than any that this consumer was told of."""
    table = given(credit=4, offsets=[0, 1, 2, 3])
    table.lapse(3, [0, 1, 9])
    assert (table.in_hand, table.held(), table.holding()[0].offset) == (2, {3: {2, 3}}, [0, 1, 2, 3])
    assert [request.credit.messages for request in table.outgoing()] == [2]
    table.settle(Verdict(3), 0)
    table.settle_many(Verdict(3), [1, 2])
    assert (table.in_hand, table.stale, table.lost) == (1, 0, 0)
    (ack,) = [request.ack for request in table.outgoing() if request.HasField("ack")]
    assert sorted(ack.offset) == [0, 1, 2]


def test_what_has_lapsed_and_comes_again_uses_credit_again() -> None:
    table = given(credit=4, offsets=[0, 1])
    table.lapse(3, [0])
    assert table.among(3, [0, 1]) == {1}  # a consumer that drops repetitions hands it out once more
    table.received(3, [0])
    assert (table.in_hand, table.held()) == (2, {3: {0, 1}})


def test_a_lapsed_message_is_lost_as_any_other_where_it_is_not_resumed() -> None:
    table = given(credit=4, offsets=[0, 1, 2])
    table.lapse(3, [0, 1])
    table.subscribed({3: frozenset([1])})
    assert (table.in_hand, table.lost, table.holding()[0].offset) == (0, 2, [1])
    assert table.among(3, [0, 1, 2]) == {2}
    table.settle(Verdict(3), 1)
    assert table.in_hand == 0


def test_of_what_has_lapsed_no_more_is_kept_than_there_is_credit() -> None:
    table = given(credit=2, offsets=[0, 1])
    table.lapse(3, [0, 1])
    table.received(3, [2])
    table.lapse(3, [2])
    assert (table.in_hand, table.lost, table.holding()) == (0, 3, [])


def given(credit: int, offsets: list[int]) -> Unsettled:
    """A table with messages of queue 3 in hand."""
    table = Unsettled(credit)
    table.credit_to_start()
    table.received(3, offsets)
    return table


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
            assert consumer.holds(first)
            assert consumer.in_hand == 1
            assert await first.ack() is aio.AckOutcome.STALE  # so the cluster says
            assert await second.ack() is aio.AckOutcome.OK
            assert consumer.in_hand == 0

    play(tmp_path, act, TransactionSettings())
