"""The hand: verdicts, credit and what a reconnect keeps."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from tarry.client.consumers.unsettled import AckOutcome, Unsettled, Verdict
from tarry.proto.tarry_consumer_pb2 import Acked, ConsumeRequest

ACK = Verdict(3)


def held(offsets: range, credit: int = 100) -> Unsettled:
    hand = Unsettled(credit)
    hand.credit_to_start()
    hand.received(3, list(offsets))
    return hand


def acks(requests: list[ConsumeRequest]) -> list[list[int]]:
    return [sorted(request.ack.offset) for request in requests if request.HasField("ack")]


def credits_of(requests: list[ConsumeRequest]) -> int:
    return sum(request.credit.messages for request in requests)


async def test_verdicts_that_are_alike_go_as_one_request() -> None:
    hand = held(range(10))
    for offset in (1, 2, 3):
        hand.settle(ACK, offset)
    hand.settle(Verdict(3, True, 500), 4)
    hand.settle(Verdict(3, True), 5)
    requests = hand.outgoing()
    assert acks(requests) == [[1, 2, 3]]
    nacks = {tuple(r.nack.offset): r.nack for r in requests if r.HasField("nack")}
    assert nacks[(4,)].delay_ms == 500
    assert not nacks[(5,)].HasField("delay_ms")
    assert len({r.ack.request or r.nack.request for r in requests if not r.HasField("credit")}) == 3
    assert hand.in_hand == 5


async def test_an_ack_is_ok_or_stale_as_the_answer_says() -> None:
    hand = held(range(3))
    waiters = [asyncio.get_running_loop().create_future() for _ in range(3)]
    for offset, waiter in enumerate(waiters):
        hand.settle(ACK, offset, waiter)
    (request,) = [r for r in hand.outgoing() if r.HasField("ack")]
    hand.answered(Acked(request=request.ack.request, queue=3, stale=[1]))
    assert [waiter.result() for waiter in waiters] == [AckOutcome.OK, AckOutcome.STALE, AckOutcome.OK]
    assert hand.stale == 1
    assert not hand.has_unanswered


async def test_a_second_ack_of_a_message_is_stale_without_asking() -> None:
    hand = held(range(1))
    hand.settle(ACK, 0)
    again = asyncio.get_running_loop().create_future()
    hand.settle(ACK, 0, again)
    assert again.result() is AckOutcome.STALE
    assert acks(hand.outgoing()) == [[0]]


async def test_many_are_settled_at_once_and_the_strange_among_them_are_stale() -> None:
    hand = held(range(3))
    waiter = asyncio.get_running_loop().create_future()
    hand.settle_many(ACK, [0, 1, 77], waiter)
    (request,) = [r for r in hand.outgoing() if r.HasField("ack")]
    assert sorted(request.ack.offset) == [0, 1]
    hand.answered(Acked(request=request.ack.request, queue=3))
    assert waiter.result() == [AckOutcome.OK, AckOutcome.OK, AckOutcome.STALE]


async def test_a_batch_with_nothing_in_hand_is_stale_at_once() -> None:
    hand = held(range(0))
    waiter = asyncio.get_running_loop().create_future()
    hand.settle_many(ACK, [5, 6], waiter)
    assert waiter.result() == [AckOutcome.STALE, AckOutcome.STALE]
    assert not hand.has_unanswered


def test_credit_is_given_back_in_steps_of_half() -> None:
    hand = held(range(40), credit=100)
    hand.settle_many(ACK, range(40))
    assert credits_of(hand.outgoing()) == 0  # the server may still send 60
    hand.received(3, range(40, 60))
    assert hand.owes_credit  # half is used: 40 were acked meanwhile
    assert credits_of(hand.outgoing()) == 40


def test_a_credit_of_one_is_given_back_each_time() -> None:
    hand = held(range(1), credit=1)
    assert credits_of(hand.outgoing()) == 0
    hand.settle(ACK, 0)
    assert credits_of(hand.outgoing()) == 1


def test_no_credit_is_given_while_the_cluster_is_far_behind_with_acks() -> None:
    hand = Unsettled(1_000)
    hand.credit_to_start()
    sent = []
    for start in range(0, 6_000, 1_000):
        hand.received(3, range(start, start + 1_000))
        hand.settle_many(ACK, range(start, start + 1_000))
        sent.append(hand.outgoing())
    assert credits_of(sent[0]) > 0
    assert credits_of(sent[-1]) == 0
    for requests in sent:
        for request in requests:
            if request.HasField("ack"):
                hand.answered(Acked(request=request.ack.request, queue=3))
    assert credits_of(hand.outgoing()) > 0


@given(st.integers(1, 50), st.lists(st.integers(0, 3), max_size=60))
def test_what_is_in_hand_and_what_may_come_never_exceed_the_credit(credit: int, steps: list[int]) -> None:
    hand = Unsettled(credit)
    may_come, offset, mine = hand.credit_to_start(), 0, []
    for step in steps:
        if step == 0 and may_come:
            hand.received(3, [offset])
            mine.append(offset)
            may_come, offset = may_come - 1, offset + 1
        elif step == 1 and mine:
            hand.settle(ACK, mine.pop())
        elif step == 2:
            may_come += credits_of(hand.outgoing())
        elif step == 3:
            hand.subscribed({3: frozenset(mine[::2])})
            mine = mine[::2]
            may_come = hand.credit_to_start()
        assert hand.in_hand == len(mine)
        assert hand.in_hand + may_come <= credit
    for kept in mine:
        hand.settle(ACK, kept)
    may_come += credits_of(hand.outgoing())
    assert may_come > credit // 2 or may_come == credit  # never stuck


async def test_a_reconnect_lists_what_is_in_hand_and_what_has_no_answer_yet() -> None:
    hand = held(range(6))
    hand.settle(ACK, 0)
    hand.outgoing()
    hand.settle(ACK, 1)
    (holding,) = hand.holding()
    assert (holding.queue, list(holding.offset)) == (3, [0, 1, 2, 3, 4, 5])


async def test_after_a_reconnect_verdicts_of_what_is_resumed_are_sent_again() -> None:
    hand = held(range(4))
    sent, unsent, gone = (asyncio.get_running_loop().create_future() for _ in range(3))
    hand.settle(ACK, 0, sent)
    hand.settle(ACK, 1, gone)
    hand.outgoing()
    hand.settle(ACK, 2, unsent)
    hand.subscribed({3: frozenset({0, 2, 3})})
    assert hand.lost == 0
    (request,) = [r for r in hand.outgoing() if r.HasField("ack")]
    assert sorted(request.ack.offset) == [0, 2]
    hand.answered(Acked(request=request.ack.request, queue=3))
    assert sent.result() is unsent.result() is AckOutcome.OK
    assert gone.result() is AckOutcome.UNKNOWN  # it may have been committed before the break


async def test_what_is_not_resumed_is_lost_and_its_ack_says_stale() -> None:
    hand = held(range(3))
    never_sent = asyncio.get_running_loop().create_future()
    hand.settle(ACK, 2, never_sent)
    hand.subscribed({3: frozenset({0})})
    assert (hand.in_hand, hand.lost) == (1, 1)
    assert never_sent.result() is AckOutcome.STALE
    late = asyncio.get_running_loop().create_future()
    hand.settle(ACK, 1, late)
    assert late.result() is AckOutcome.STALE
    assert not hand.has_unanswered


async def test_when_no_stream_will_follow_nobody_is_left_waiting() -> None:
    hand = held(range(2))
    sent, unsent = (asyncio.get_running_loop().create_future() for _ in range(2))
    hand.settle(ACK, 0, sent)
    hand.outgoing()
    hand.settle(ACK, 1, unsent)
    hand.abandon()
    assert sent.result() is unsent.result() is AckOutcome.UNKNOWN


def test_what_was_lost_and_comes_again_is_known_until_its_holder_settles_it() -> None:
    hand = held(range(3))
    hand.subscribed({3: frozenset({0})})
    assert hand.among(3, [0, 1, 2, 9]) == {0, 1, 2}
    hand.settle(ACK, 1)
    assert hand.among(3, [1, 2]) == {2}
    hand.received(3, [2])
    hand.settle(ACK, 2)
    assert hand.among(3, [2]) == set()


async def test_a_verdict_on_what_another_incarnation_has_delivered_is_stale_and_changes_nothing() -> None:
    hand = held(range(3))
    hand.subscribed({})
    hand.begin_anew(7)
    hand.received(3, [0, 1])
    hand.subscribed({3: frozenset({0})})
    old = ACK._replace(incarnation=0)
    single = asyncio.get_running_loop().create_future()
    many = asyncio.get_running_loop().create_future()
    hand.settle(old, 0, single)
    hand.settle_many(old, [0, 1], many)
    assert single.result() is AckOutcome.STALE
    assert many.result() == [AckOutcome.STALE] * 2
    assert (hand.stale, hand.in_hand, acks(hand.outgoing())) == (3, 1, [])
    assert hand.among(3, [0, 1]) == {0, 1}
    hand.settle(ACK._replace(incarnation=7), 0)
    assert acks(hand.outgoing()) == [[0]]


async def test_an_extended_message_stays_in_hand_and_can_be_acked_after() -> None:
    hand = held(range(2))
    extended = asyncio.get_running_loop().create_future()
    hand.settle(Verdict(3, extend_ms=5_000), 0, extended)
    hand.settle(ACK, 0)
    requests = hand.outgoing()
    (extend,) = [r.extend for r in requests if r.HasField("extend")]
    assert (list(extend.offset), extend.lease_ms) == ([0], 5_000)
    assert acks(requests) == [[0]]
    hand.answered(Acked(request=extend.request, queue=3))
    assert extended.result() is AckOutcome.OK
    assert hand.in_hand == 1


async def test_an_extension_that_is_stale_takes_the_message_out_of_hand() -> None:
    hand = held(range(2), credit=2)
    hand.settle_many(Verdict(3, extend_ms=5_000), [0, 1])
    (request,) = hand.outgoing()
    hand.answered(Acked(request=request.extend.request, queue=3, stale=[1]))
    assert (hand.in_hand, hand.lost, hand.stale) == (1, 1, 0)
    assert credits_of(hand.outgoing()) == 1
