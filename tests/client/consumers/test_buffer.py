"""The buffer: order, leases that go on while messages wait, and what is passed over."""

from __future__ import annotations

from typing import Any

from tarry.client.consumers.buffer import Buffer
from tarry.client.consumers.message import MessageBatch
from tarry.proto.tarry_consumer_pb2 import Deliveries


def batch(offsets: range, leased_s: float, queue: int = 3) -> MessageBatch:
    settler: Any = None  # nothing is settled here
    deliveries = Deliveries(queue=queue, offset=offsets, records=[b""] * len(offsets))
    return MessageBatch(deliveries, 0, 0, settler, leased_s)


def drained(buffer: Buffer, oldest_s: float = 0) -> list[int]:
    messages = iter(lambda: buffer.message(oldest_s), None)
    return [message.offset for message in messages]


def test_messages_and_batches_come_out_in_the_order_they_came_in() -> None:
    buffer = Buffer()
    for start in (0, 3, 6):
        buffer.put(batch(range(start, start + 3), 1))
    first = buffer.batch(0)
    assert first is not None
    assert first.offsets == [0, 1, 2]
    assert drained(buffer) == [3, 4, 5, 6, 7, 8]
    assert buffer.batch(0) is None


def test_what_waits_long_is_renewed_once_in_a_while_and_only_while_it_waits() -> None:
    buffer = Buffer()
    buffer.put(batch(range(2), 1))
    buffer.put(batch(range(2, 4), 2))
    buffer.put(batch(range(4, 6), 9, queue=7))
    assert buffer.message(0) is not None
    assert buffer.renew(before_s=5, now_s=10) == [(3, [1]), (3, [2, 3])]
    assert buffer.renew(before_s=5, now_s=10) == []
    assert drained(buffer) == [1, 2, 3, 4, 5]
    assert buffer.renew(before_s=99, now_s=100) == []


def test_what_is_leased_no_more_is_passed_over_and_told() -> None:
    buffer = Buffer()
    buffer.put(batch(range(2), 1))
    buffer.put(batch(range(2, 4), 5))
    assert buffer.message(0) is not None
    assert drained(buffer, oldest_s=3) == [2, 3]
    assert buffer.expired == [(3, [1])]
    buffer.put(batch(range(4, 6), 1))
    assert buffer.batch(oldest_s=3) is None
    assert buffer.expired == [(3, [1]), (3, [4, 5])]


def test_what_is_in_hand_no_more_is_dropped() -> None:
    buffer = Buffer()
    buffer.put(batch(range(3), 1))
    buffer.put(batch(range(3, 6), 1))
    buffer.put(batch(range(6, 8), 1))
    assert buffer.message(0) is not None
    buffer.keep(lambda message: message.offset in {2, 4})
    assert drained(buffer) == [2, 4]
