"""What operators ask about a queue that is damaged: refused, and the queue is mended; its groups go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import Message

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_operator_pb2 as pb
from tarry.proto.tarry_consumer_pb2 import GroupStart, StartAt
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine.queue_checksums import BLOCK_UNITS
from tarry.replication.state_machine.ready_queue import UNIT
from tarry.replication.state_machine.refusal import Refusal
from tests.node.lone_leader import GROUP, TOPIC, Leader, leader
from tests.node.repair.test_queues import lose_unit
from tests.simulation.edge import Context, StreamEnded

LETTERS = f"dlq.{GROUP}.{TOPIC}"


async def damage_queue(lead: Leader, topic: str) -> None:
    await lead.propose(log_pb.SubscribeCommand(topic=topic, group=GROUP))
    queue = lead.machine.queues.of(topic)
    units = np.zeros(BLOCK_UNITS, dtype=UNIT)
    units["due_ms"] = lead.node.time.now_ms()
    queue.append(units)
    lose_unit(lead.machine, 5, queue.queue)


async def test_a_seek_by_time_and_a_redrive_leave_the_groups_of_a_damaged_queue_alone(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds()) as lead:
        await damage_queue(lead, TOPIC)
        await damage_queue(lead, LETTERS)
        calls, context = lead._operator._topic_calls, Context()
        anything: Any = context
        delivery, damage = lead.node.leadership.delivery, lead.node._core.damage.queues
        assert delivery is not None
        start = GroupStart(at=StartAt.START_AT_TIME, time_ms=1)
        seek = pb.SeekGroupRequest(topic=TOPIC, group=GROUP, start=start)
        answer = await calls._unary(pb.SeekGroupRequest, calls._seek_group)(
            seek.SerializeToString(), anything
        )
        assert isinstance(answer, Refusal)
        assert (answer.reason, answer.retry_ms, damage.found) == ("NO_LEADER", 1_000, 1)
        request = pb.RedriveRequest(topic=LETTERS, dry_run=True).SerializeToString()
        with pytest.raises(StreamEnded, match="being mended"):
            async for _ in calls._redrive(request, anything):
                pass
        assert damage.found == 2
        assert lead.node.leadership.delivery is delivery


RETENTION_BYTES = b"\xfa\x01\x01\x07"  # a field that no version has
SETTINGS = b"\x0a\x01t\x12\x04" + RETENTION_BYTES


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (pb.CreateTopicRequest, b"\x0a\x01t" + RETENTION_BYTES),
        (pb.CreateTopicRequest, SETTINGS),
        (pb.CreateGroupRequest, b"\x0a\x01t\x12\x01g\x1a\x04" + RETENTION_BYTES),
    ],
    ids=["of the request", "of the topic's settings", "of the group's start"],
)
async def test_a_request_with_a_field_that_this_version_does_not_know_is_refused(
    kind: type[Message], raw: bytes, tmp_path: Path
) -> None:
    async with leader(tmp_path, Holds()) as lead:
        calls, context = lead._operator._topic_calls, Context()
        anything: Any = context
        name = "_create_topic" if kind is pb.CreateTopicRequest else "_create_group"
        answer = await calls._unary(kind, getattr(calls, name))(raw, anything)
        assert isinstance(answer, Refusal)
        assert answer.reason == "FIELD_UNKNOWN"
        assert lead.machine.queues.find("t") is None
