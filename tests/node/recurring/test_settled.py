"""Whether a message waits for nothing, at a node that leads alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np

from tarry.node.recurring.settled import is_settled
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.dead_letters import dead_letter_topic
from tarry.proto.tarry_operator_pb2 import MisfirePolicy, TopicSettings
from tarry.replication.loop_holds import Holds
from tests.node.lone_leader import GROUP, TOPIC, leader, until

LATE_MS = 10_000


def test_what_has_misfired_waits_for_no_group_of_its_topic(tmp_path: Path) -> None:
    """A group of the topic of misfired messages, where somebody looks one day, holds up no schedule."""

    async def act() -> None:
        async with leader(tmp_path, Holds()) as lead:
            settings = TopicSettings(
                misfire=MisfirePolicy.MISFIRE_POLICY_DEAD_LETTER, misfire_after_ms=LATE_MS // 2
            )
            now_ms = lead.node.time.now_ms()
            due_ms = now_ms + 60_000
            await lead.propose(log_pb.TopicCommand(topic=TOPIC, settings=settings, now_ms=now_ms))
            letters = dead_letter_topic(TOPIC)
            await lead.propose(log_pb.SubscribeCommand(topic=letters, group=GROUP, now_ms=now_ms))
            told = await lead.schedule(1, np.array([due_ms]))
            hour, index = (int(np.frombuffer(one, "<u4")[0]) for one in (told.hour, told.global_index))
            await until(lambda: lead.node.leadership.delivery is not None)
            delivery = lead.node.leadership.delivery
            assert delivery is not None
            assert not await is_settled(lead.machine, delivery, hour, index)
            released = log_pb.ReleaseCommand(until_ms=due_ms, count=1, now_ms=due_ms + LATE_MS)
            await lead.propose(released)
            assert lead.machine.queues.of(letters).units == 1
            assert await is_settled(lead.machine, delivery, hour, index)

    asyncio.run(act())
