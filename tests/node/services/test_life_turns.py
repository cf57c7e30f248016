"""Looking at a message's life holds the event loop for no longer than a turn may take."""

from __future__ import annotations

from typing import Any

import numpy as np

from tarry.node.delivery.retries import Delay
from tarry.node.edge.auth import Authorizer
from tarry.node.services.life import LifeCalls
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.message_id import MessageId
from tarry.proto.tarry_message_pb2 import RetryReason
from tests import turns as cost
from tests.node.lone_leader import GROUP, TOPIC, Leader, Stream, play, subscription, until
from tests.simulation.edge import Context

BACKLOG = 1_000_000
IN_HAND = 100_000
RETRIES = 20_000
GROUPS = 200


async def life(lead: Leader, message: MessageId) -> pb.GetLifeResponse:
    calls = LifeCalls(lead.node._core, Authorizer({}), lead.edge._calls)
    context: Any = Context()
    answer = await calls._get(pb.GetLifeRequest(id=str(message)), context)
    assert isinstance(answer, bytes), answer
    return pb.GetLifeResponse.FromString(answer)


def message_at(lead: Leader, offset: int) -> MessageId:
    unit = lead.machine.queues.of(TOPIC).read(offset, 1)[0]
    return MessageId(0, int(unit["hour"]), int(unit["global_index"]))


def test_messages_of_a_long_queue_with_much_in_hand_and_many_groups() -> None:
    async def act(lead: Leader, steps: cost.Steps) -> None:
        await lead.ready(BACKLOG)
        for number in range(GROUPS):
            start = consumer_pb.GroupStart(at=consumer_pb.START_AT_EARLIEST)
            await lead.propose(log_pb.SubscribeCommand(topic=TOPIC, group=f"h{number}", start=start))
        stream = Stream(lead.edge, subscription("c", IN_HAND))
        await until(lambda: stream.received >= IN_HAND)
        async with steps.step("in hand"):
            told = await life(lead, message_at(lead, IN_HAND // 2))
        states = {one.group: one.state for one in told.groups}
        assert states[GROUP] == pb.GROUP_STATE_IN_HAND
        assert states["h7"] == pb.GROUP_STATE_WAITING
        async with steps.step("at the end"):
            told = await life(lead, message_at(lead, BACKLOG - 1))
        (own,) = [one for one in told.groups if one.group == GROUP]
        assert own.before == BACKLOG - 1 - IN_HAND
        # due long before the others, and last in the queue: looked for in all of it
        hour_before = lead.node.time.now_ms() - 3_600_000
        await lead.schedule(1, np.array([hour_before]))
        await until(lambda: lead.machine.queues.of(TOPIC).units > BACKLOG)
        async with steps.step("out of order"):
            told = await life(lead, message_at(lead, BACKLOG))
        assert told.offset == BACKLOG

    assert cost.too_long(play(act)) == {}


def test_a_message_that_waits_for_its_retry_among_many() -> None:
    async def act(lead: Leader, steps: cost.Steps) -> None:
        await lead.ready(RETRIES)
        start = consumer_pb.GroupStart(at=consumer_pb.START_AT_EARLIEST)
        await lead.propose(log_pb.SubscribeCommand(topic=TOPIC, group=GROUP, start=start))
        queue = lead.machine.queues.of(TOPIC)
        delivery = lead.node.leadership.delivery
        assert delivery is not None
        group = delivery.group(TOPIC, GROUP, queue.queue, lead.machine.queues.of(TOPIC, GROUP).queue)
        offsets = np.arange(RETRIES, dtype=np.uint64)
        reason = RetryReason.RETRY_REASON_NACKED
        await group.settlement.retry(group.feeds[queue.queue], offsets, reason, Delay(3_600_000))
        async with steps.step("in back-off"):
            told = await life(lead, message_at(lead, RETRIES - 1))
        assert [one.state for one in told.groups] == [pb.GROUP_STATE_IN_BACK_OFF]

    assert cost.too_long(play(act)) == {}
