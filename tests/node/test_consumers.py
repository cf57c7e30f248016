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


async def test_one_that_does_not_read_gets_no_more_and_is_found_again_when_it_has_read() -> None:
    stream = consumer()
    half = b"x" * (OUTGOING_BYTES_MAX // 2)
    for _ in range(3):
        stream.send(half)
    assert stream.wants() == 0
    caught_up = []
    for _ in range(3):
        await stream.next_response()
        caught_up.append(stream.caught_up())
    assert caught_up == [False, False, True]
    assert not stream.caught_up()
    assert stream.wants() == 50
