"""A consumer's stream at the leader."""

import asyncio

from tarry.node.delivery.consumer import ANSWERS_BYTES_MAX, OUTGOING_BYTES_MAX, Consumer, PolledFilter
from tarry.proto.reasons import Reason
from tarry.replication.state_machine.refusal import Refusal


def consumer() -> Consumer:
    return Consumer("c", "t", "g", lease_ms=1_000, credit=50)


async def test_responses_come_out_in_order_until_the_end() -> None:
    stream = consumer()
    stream.send(b"a")
    stream.send(b"b")
    assert [await stream.next_response(), await stream.next_response()] == [b"a", b"b"]
    stream.end(Refusal(Reason.SHUTTING_DOWN, "over"))
    assert await stream.next_response() is None
    assert stream.wants() == 0


async def test_a_stream_gets_no_more_while_a_response_waits_and_is_found_again_when_it_is_written() -> None:
    stream = consumer()
    stream.streams = True
    for _ in range(2):
        stream.send(b"x")
    assert stream.wants() == 0
    caught_up = []
    for _ in range(2):
        await stream.next_response()
        caught_up.append(stream.caught_up())
    assert caught_up == [False, True]
    assert not stream.caught_up()
    assert stream.wants() == 50


async def test_what_goes_out_at_once_does_not_wait() -> None:
    stream = consumer()
    stream.streams = True
    writer = asyncio.create_task(stream.next_response())
    await asyncio.sleep(0)
    stream.send(b"a")
    assert stream.wants() == 50
    stream.send(b"b")
    assert stream.wants() == 0
    assert await writer == b"a"
    assert stream.wants() == 0
    assert await stream.next_response() == b"b"
    assert stream.wants() == 50


def test_the_answer_of_a_call_is_bounded_in_bytes() -> None:
    call = consumer()
    call.send(b"x" * (OUTGOING_BYTES_MAX - 1))
    assert call.wants() == 50
    call.send(b"x")
    assert call.wants() == 0
    assert len(call.take_all()) == 2
    assert call.wants() == 50


async def test_a_stream_that_asks_and_never_reads_is_ended() -> None:
    stream = consumer()
    stream.streams = True
    stream.send(b"d" * (2 * ANSWERS_BYTES_MAX))  # a delivery may be of any size
    stream.send(b"x" * ANSWERS_BYTES_MAX)
    stream.send(b"x")
    assert stream.ended is None
    stream.send(b"x")
    assert stream.ended is not None
    assert stream.ended.reason is Reason.CONSUMER_TOO_SLOW
    stream.send(b"x")
    assert stream.outgoing_bytes == 0
    assert await stream.next_response() is None


def test_a_caller_s_filter_counts_between_its_calls_and_while_anything_is_in_hand() -> None:
    polled = PolledFilter(lease_ms=1_000)
    red, blue, stream = (Consumer(name, "t", "g", 1_000, 50, frozenset({name})) for name in ("r", "b", "s"))
    red.polls = blue.polls = True
    polled.note(stream, 5)
    assert polled.differs(red, 6, in_flight=True) is None
    polled.note(red, 10)
    assert polled.differs(red, 11, in_flight=True) is None
    for other in (blue, stream):
        assert polled.differs(other, 1_009, in_flight=False)
        assert polled.differs(other, 1_010, in_flight=True)
        assert polled.differs(other, 1_010, in_flight=False) is None
    polled.note(stream, 1_010)
    assert polled.differs(blue, 1_011, in_flight=True) is None  # streams say so while they are there
