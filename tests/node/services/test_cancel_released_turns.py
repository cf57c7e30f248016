"""Cancels of released messages hold the event loop for no longer than a turn may take."""

from __future__ import annotations

import asyncio

import numpy as np

from tarry.node.config import Limits
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.message_id import format_ids
from tarry.proto.tarry_consumer_pb2 import GroupStart, StartAt
from tarry.proto.tarry_producer_pb2 import CANCEL_OUTCOME_CANCELLED, CancelRequest, CancelResponse
from tests import turns as cost
from tests.node.lone_leader import TOPIC, Leader, play

MOST = Limits().cancel_ids_max
BACKLOG = 100_000
GROUPS = 200


def test_cancelling_as_many_as_a_request_may_name_of_a_backlog_that_many_groups_wait_for() -> None:
    async def act(lead: Leader, steps: cost.Steps) -> None:
        await lead.propose(log_pb.RaiseLevelCommand(level=2, now_ms=lead.node.time.now_ms()))
        await lead.ready(BACKLOG)
        start = GroupStart(at=StartAt.START_AT_EARLIEST)
        for first in range(0, GROUPS, 100):
            subscribe = [
                log_pb.SubscribeCommand(topic=TOPIC, group=f"g{number}", start=start)
                for number in range(first, first + 100)
            ]
            await asyncio.gather(*map(lead.propose, subscribe))
        delivery, queues = lead.node.leadership.delivery, lead.machine.queues
        assert delivery is not None
        for number in range(GROUPS):
            of = TOPIC, f"g{number}"
            opened = delivery.group(*of, queues.of(TOPIC).queue, queues.of(*of).queue)
            opened.pump()
            await asyncio.sleep(0)
        units = lead.machine.queues.of(TOPIC).read(0, BACKLOG)
        chosen = units[np.random.default_rng(1).choice(BACKLOG, MOST, replace=False)]
        ids = format_ids(0, chosen["hour"], chosen["global_index"])
        async with steps.step("scattered"):
            answer = await lead.edge.cancel(CancelRequest(ids=ids).SerializeToString())
        assert isinstance(answer, bytes), answer
        assert set(CancelResponse.FromString(answer).outcomes) == {CANCEL_OUTCOME_CANCELLED}

    assert cost.too_long(play(act)) == {}
