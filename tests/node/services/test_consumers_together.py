"""Consumers that ask at once, each of much that it holds, share turns of the event loop."""

from __future__ import annotations

import asyncio

import numpy as np

from tarry.node.config import Limits
from tarry.proto import tarry_consumer_pb2 as pb
from tests import turns as cost
from tests.node.lone_leader import TOPIC, Leader, Stream, play, subscription, until
from tests.simulation.edge import StreamEnded

LIMITS = Limits()


def test_what_many_consumers_say_together_of_what_they_hold() -> None:
    consumers, each = 100, 1_000

    async def act(lead: Leader, steps: cost.Steps) -> None:
        await lead.ready(consumers * each)
        streams = {f"c{at}": Stream(lead.edge, subscription(f"c{at}", each)) for at in range(consumers)}
        await asyncio.gather(*(stream.answer() for stream in streams.values()))
        await until(lambda: sum(stream.received for stream in streams.values()) == consumers * each)
        queue = lead.machine.queues.of(TOPIC).queue
        feed = lead.group().feeds[queue]
        held = {
            name: np.concatenate([batch.offsets for batch in feed.in_flight.batches(name)]).tolist()
            for name in streams
        }
        extends = {
            name: pb.Extend(request=1, queue=queue, offset=held[name], lease_ms=60_000) for name in streams
        }
        async with steps.step("extend"):
            requests = [pb.ConsumeRequest(extend=extend) for extend in extends.values()]
            answers = await asyncio.gather(*map(Stream.asked, streams.values(), requests))
        assert not any(answer.acked.stale for answer in answers)
        ended = [stream.ended for stream in streams.values()]
        async with steps.step("resume"):
            for name in streams:
                holding = [pb.Holding(queue=queue, offset=held[name])]
                streams[name] = Stream(lead.edge, subscription(name, 1, holding=holding))
            resumed = await asyncio.gather(*(stream.answer() for stream in streams.values()))
            await asyncio.wait(ended)
        assert all(len(answer.subscribed.resumed[0].offset) == each for answer in resumed)
        assert all(isinstance(one.exception(), StreamEnded) for one in ended)  # CONSUMER_REPLACED
        half = each // 2
        acks = [
            pb.ConsumeRequest(ack=pb.Ack(request=2, queue=queue, offset=held[name][:half]))
            for name in streams
        ]
        async with steps.step("ack"):
            answers = await asyncio.gather(*map(Stream.asked, streams.values(), acks))
        assert not any(answer.acked.stale for answer in answers)
        async with steps.step("leave"):
            await asyncio.gather(*map(Stream.leave, streams.values()))
            await until(lambda: not feed.in_flight_messages)

    assert cost.too_long(play(act)) == {}


def test_as_many_consumers_as_there_may_be_come_and_leave_at_once() -> None:
    consumers = LIMITS.consumers_max - 1

    async def act(lead: Leader, steps: cost.Steps) -> None:
        await lead.ready(1)
        first = Stream(lead.edge, subscription("first", 1))
        await first.answer()
        requests = [subscription(f"c{at}", 1) for at in range(consumers)]
        async with steps.step("come"):
            streams = [Stream(lead.edge, request) for request in requests]
            for stream in streams:
                await stream.answer()
        async with steps.step("leave"):
            await asyncio.gather(*map(Stream.leave, streams))
            await until(lambda: len(lead.group().consumers) == 1)

    assert cost.too_long(play(act)) == {}
