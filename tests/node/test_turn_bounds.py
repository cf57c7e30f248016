"""A request that names as much as it may holds the event loop for no longer than a turn may take."""

from __future__ import annotations

import pytest

from tarry.node.config import Limits
from tarry.proto import tarry_consumer_pb2 as pb
from tests import turns as cost
from tests.node.lone_leader import TOPIC, Leader, Stream, play, subscription, until
from tests.simulation.edge import StreamEnded

LIMITS = Limits()
IN_HAND = LIMITS.credit_max


KINDS: dict[str, type[pb.Ack | pb.Nack | pb.Extend]] = {"ack": pb.Ack, "nack": pb.Nack, "extend": pb.Extend}


async def in_hand(lead: Leader, count: int, name: str) -> tuple[Stream, int]:
    """A stream whose consumer holds the first messages of a queue; and the queue."""
    await lead.ready(count)
    stream = Stream(lead.edge, subscription(name, count))
    assert (await stream.answer()).HasField("subscribed")
    await until(lambda: stream.received >= count)
    return stream, lead.machine.queues.of(TOPIC).queue


def test_what_a_consumer_says_of_all_that_it_may_hold() -> None:
    async def act(lead: Leader, steps: cost.Steps) -> None:
        stream, queue = await in_hand(lead, IN_HAND, "a")
        offsets = list(range(IN_HAND))
        third = offsets[: IN_HAND // 3]
        ack = pb.ConsumeRequest(ack=pb.Ack(request=1, queue=queue, offset=offsets))
        ack_third = pb.ConsumeRequest(ack=pb.Ack(request=2, queue=queue, offset=third))
        extend = pb.ConsumeRequest(extend=pb.Extend(request=3, queue=queue, offset=offsets, lease_ms=60_000))
        resume = subscription("a", 1, holding=[pb.Holding(queue=queue, offset=offsets)])
        async with steps.step("extend"):
            assert not (await stream.asked(extend)).acked.stale
        async with steps.step("resume"):
            again = Stream(lead.edge, resume)
            assert len((await again.answer()).subscribed.resumed[0].offset) == IN_HAND
        other = Stream(lead.edge, subscription("b", 1))
        assert (await other.answer()).HasField("subscribed")
        async with steps.step("another's"):
            assert len((await other.asked(ack)).acked.stale) == IN_HAND
        await other.leave()
        async with steps.step("ack"):
            assert not (await again.asked(ack_third)).acked.stale
        async with steps.step("leave"):
            await again.leave()
            group = lead.group()
            await until(lambda: not group.feeds[queue].in_hand)

    assert cost.too_long(play(act)) == {}


def test_offsets_that_nobody_holds() -> None:
    async def act(lead: Leader, steps: cost.Steps) -> None:
        stream, queue = await in_hand(lead, 1, "a")
        offsets = list(range(10**9, 10**9 + LIMITS.offsets_max))
        for kind, message in KINDS.items():
            request = pb.ConsumeRequest(**{kind: message(request=1, queue=queue, offset=offsets)})
            async with steps.step(kind):
                assert len((await stream.asked(request)).acked.stale) == len(offsets)
        subscribe = subscription("a", 1, holding=[pb.Holding(queue=queue, offset=offsets)])
        async with steps.step("resume"):
            again = Stream(lead.edge, subscribe)
            assert not (await again.answer()).subscribed.resumed

    assert cost.too_long(play(act)) == {}


def test_more_offsets_are_refused_before_they_are_looked_at() -> None:
    most = LIMITS.offsets_max
    text = f"{most + 1} offsets, more than {most}"

    async def act(lead: Leader, steps: cost.Steps) -> None:
        stream, queue = await in_hand(lead, 1, "a")
        offsets = range(most + 1)
        subscribe = subscription("b", 1, holding=[pb.Holding(queue=queue, offset=offsets)])
        async with steps.step("resume"):
            with pytest.raises(StreamEnded, match=text):
                await Stream(lead.edge, subscribe).ended
        for kind, message in KINDS.items():
            request = pb.ConsumeRequest(**{kind: message(request=1, queue=queue, offset=offsets)})
            async with steps.step(kind):
                stream.send(request)
                with pytest.raises(StreamEnded, match=text):
                    await stream.ended
            stream = Stream(lead.edge, subscription("a", 1))
            await stream.answer()

    assert cost.too_long(play(act)) == {}
