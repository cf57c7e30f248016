"""Reschedules hold the event loop for no longer than a turn may take, wherever messages rest."""

from __future__ import annotations

import asyncio

import numpy as np

from tarry.node.config import Limits
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.message_id import format_ids
from tarry.proto.tarry_producer_pb2 import CHANGE_OUTCOME_CHANGED, RescheduleRequest, RescheduleResponse
from tarry.wheel.state import HOUR_MS
from tests import turns as cost
from tests.node.lone_leader import Leader, play

MOST = Limits().reschedule_ids_max


def test_rescheduling_as_many_as_a_request_may_name_from_hours_to_other_hours_and_together() -> None:
    async def act(lead: Leader, steps: cost.Steps) -> None:
        await lead.propose(log_pb.RaiseLevelCommand(level=2, now_ms=lead.node.time.now_ms()))
        begin_ms = (lead.node.time.now_ms() // HOUR_MS + 3) * HOUR_MS
        spread = begin_ms + np.arange(MOST) * HOUR_MS
        crowd = [await lead.schedule(4_096, np.full(4_096, begin_ms + 5)) for _ in range(20)]
        columns = await lead.schedule(MOST, spread)
        ids = [
            format_ids(0, np.frombuffer(one.hour, "<u4"), np.frombuffer(one.global_index, "<u4"))[:MOST]
            for one in (columns, *crowd)
        ]
        for name, of, due_ms in (
            ("to other hours", ids[0], spread + 2_000 * HOUR_MS),
            ("together", ids[0], begin_ms + HOUR_MS // 2 + np.zeros(MOST, np.int64)),
            ("apart again", ids[0], spread + 1),
            ("out of a crowd", ids[1], spread + HOUR_MS),
        ):
            request = RescheduleRequest(ids=of, due_ms=due_ms.tolist()).SerializeToString()
            async with steps.step(name):
                answer = await lead.edge.reschedule(request)
            assert isinstance(answer, bytes), answer
            outcomes = RescheduleResponse.FromString(answer).outcomes
            assert set(outcomes) == {CHANGE_OUTCOME_CHANGED}
        requests = [RescheduleRequest(ids=of, delay_ms=[HOUR_MS]).SerializeToString() for of in ids[1:]]
        async with steps.step("many at once"):
            await asyncio.gather(*map(lead.edge.reschedule, requests))

    assert cost.too_long(play(act)) == {}
