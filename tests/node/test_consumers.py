"""A consumer's stream at the leader."""

from tarry.node.consumers import OUTGOING_BYTES_MAX, Consumer
from tarry.replication.refusal import Reason, Refusal


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


def test_the_answer_of_a_call_is_bounded_in_bytes() -> None:
    call = consumer()
    call.send(b"x" * (OUTGOING_BYTES_MAX - 1))
    assert call.wants() == 50
    call.send(b"x")
    assert call.wants() == 0
    assert len(call.take_all()) == 2
    assert call.wants() == 50
