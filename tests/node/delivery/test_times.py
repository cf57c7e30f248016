"""A delivery says when it was handed over; a retry's also when its message was first born and stored."""

from __future__ import annotations

import asyncio

import numpy as np

from tarry.client.consumers.message import Columns
from tarry.node.delivery.retries import Delay, dead_letter
from tarry.proto import tarry_consumer_pb2 as pb
from tarry.proto.tarry_message_pb2 import Record, Retried
from tests.node.group_in_process import Group
from tests.node.group_play import play


def given(group: Group) -> Columns:
    consumer = group.hands["a"].consumer
    assert consumer is not None
    (response,) = consumer.take_all()
    return Columns(pb.ConsumeResponse.FromString(response).deliveries, 0, 0)


def test_a_retry_keeps_its_first_times_and_has_a_delivery_of_its_own() -> None:
    async def steps(group: Group) -> None:
        group.join("a")
        stored_ms = group.time.now_ms()
        group.schedule("", 40)
        group.release()
        await asyncio.sleep(0.042)
        first = given(group)
        assert (first.stored_ms.tolist(), first.born_ms.tolist()) == ([stored_ms], [0])
        assert first.delivered_ms is not None
        assert first.due_ms[0] <= first.delivered_ms <= group.time.now_ms()
        group.group.settlement.nack("a", first.queue, np.array(first.offsets, np.uint64), Delay(5_000))
        await group.settle()
        await group.commit()
        group.ahead_ms = 10_000
        group.release()
        await asyncio.sleep(5.1)
        again = given(group)
        assert again.attempts.tolist() == [2]
        assert again.stored_ms.tolist() == [stored_ms]
        assert again.delivered_ms is not None
        assert again.delivered_ms >= first.delivered_ms + 5_000

    play(steps)


def test_a_dead_letter_keeps_the_times_of_its_message() -> None:
    record = Record(body=b"x", born_ms=5, stored_ms=7)
    letter = Record.FromString(dead_letter(0, Retried(record=record.SerializeToString(), topic="t")))
    assert (letter.born_ms, letter.stored_ms) == (5, 7)
