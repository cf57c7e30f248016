"""Cancels of messages of thousands of queues hold the event loop for no longer than a turn may take."""

from __future__ import annotations

import asyncio

import numpy as np

from tarry.node.config import Limits
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.message_id import format_ids
from tarry.proto.tarry_consumer_pb2 import GroupStart, StartAt
from tarry.proto.tarry_message_pb2 import Retried
from tarry.proto.tarry_producer_pb2 import CANCEL_OUTCOME_CANCELLED, CancelRequest, CancelResponse
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.state import HOUR_MS
from tests import turns as cost
from tests.node.lone_leader import RECORD, TOPIC, Leader, play

LIMITS = Limits()


def test_cancelling_messages_of_thousands_of_topics_and_copies_of_thousands_of_groups() -> None:
    most, groups, each = LIMITS.cancel_ids_max, LIMITS.cancel_ids_max // 4, 4

    async def act(lead: Leader, steps: cost.Steps) -> None:
        due_ms = (lead.node.time.now_ms() // HOUR_MS + 3) * HOUR_MS
        part = LIMITS.batch_topics_max
        for first in [*range(0, most, part)] * 2:
            topics = [f"t{number}" for number in range(first, first + part)]
            await lead.schedule(part, np.full(part, due_ms), topics)
        requests = [request(due_ms, first, most) for first in (0, most)]  # each of one message a topic
        async with steps.step("messages"):
            answers = await asyncio.gather(*map(lead.edge.cancel, requests))
        assert all(map(cancelled, answers))
        due_ms += HOUR_MS
        await lead.ready(each)
        start = GroupStart(at=StartAt.START_AT_EARLIEST)
        names = [f"g{number}" for number in range(groups)]
        subscribe = [log_pb.SubscribeCommand(topic=TOPIC, group=name, start=start) for name in names]
        await asyncio.gather(*map(lead.propose, subscribe))
        queue = lead.machine.queues.of(TOPIC).queue
        retries = [
            log_pb.RetryCommand(
                group=name,
                queue=queue,
                offset=np.arange(each, dtype="<u8").tobytes(),
                due_ms=np.full(each, due_ms, "<i8").tobytes(),
                tag_mask=bytes(8 * each),
                records=[Retried(record=RECORD, topic=TOPIC, group=name, attempt=2).SerializeToString()]
                * each,
                target_topic=TOPIC,
                target_group=name,
            )
            for name in names
        ]
        for first in range(0, groups, 100):
            await asyncio.gather(*map(lead.propose, retries[first : first + 100]))
        copies = request(due_ms, 0, groups * each)
        async with steps.step("copies"):
            answer = await lead.edge.cancel(copies)
        assert cancelled(answer)

    assert cost.too_long(play(act)) == {}


def request(due_ms: int, first: int, count: int) -> bytes:
    """Return a request to cancel messages of an hour by their indices."""
    ids = format_ids(0, np.full(count, due_ms // HOUR_MS), np.arange(first, first + count))
    return CancelRequest(ids=ids).SerializeToString()


def cancelled(answer: bytes | Refusal) -> bool:
    """Return whether an answer says that all were pending."""
    assert isinstance(answer, bytes)
    return set(CancelResponse.FromString(answer).outcomes) == {CANCEL_OUTCOME_CANCELLED}
