"""Life and history of a message that was rescheduled, and whose retry was: under the id that was given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.tarry_message_pb2 import MessageState
from tarry.proto.tarry_operator_pb2 import BackOff
from tests.node.lone_leader import GROUP, TOPIC, Leader, Stream, subscription, until
from tests.node.services import test_history as history
from tests.node.services.test_changes import HOUR_MS, reschedule
from tests.node.services.test_life import STATES, group, is_in, led, life, of_group, scheduled, verdict


async def kinds(lead: Leader, message: str) -> list[tuple[str, str]]:
    """Kinds and groups of the rows of a message's history, in the order of the log."""
    responses = await history.read(lead, pb.ReadHistoryRequest(id=message))
    assert (responses[-1].complete, responses[-1].from_beginning) == (True, True)
    rows = [row for one in responses for row in one.rows]
    return [(row.kind, row.group) for row in sorted(rows, key=lambda row: (row.index, row.position))]


@pytest.mark.parametrize("ordering_key", ["", "k"])
def test_of_a_rescheduled_message_its_deliveries_and_retries_are_told_under_its_id(
    tmp_path: Path, ordering_key: str
) -> None:
    async def act(lead: Leader) -> None:
        await group(lead, back_off=BackOff(fixed_ms=2 * HOUR_MS))
        (message,) = await scheduled(lead, 30 * HOUR_MS, ordering_key=ordering_key)
        now_ms = lead.node.time.now_ms()
        assert await reschedule(lead, message, due_ms=[now_ms + 5 * HOUR_MS]) == ["CHANGED"]
        told = await life(lead, message)
        assert (told.id, told.due_ms) == (message, now_ms + 5 * HOUR_MS)
        assert told.state == MessageState.MESSAGE_STATE_PENDING
        assert STATES[told.groups[0].state] == "WAITING"
        assert await reschedule(lead, message, due_ms=[now_ms]) == ["CHANGED"]
        stream = Stream(lead.edge, subscription("c", 1))
        await until(lambda: stream.received == 1)
        told = await life(lead, message)
        assert (told.id, told.offset) == (message, 0)
        assert now_ms <= told.due_ms <= told.released_ms <= lead.node.time.now_ms()
        assert told.state == MessageState.MESSAGE_STATE_RELEASED
        assert (STATES[told.groups[0].state], told.groups[0].consumer) == ("IN_HAND", "c")

        await stream.asked(verdict("nack", 0))
        one = await is_in(lead, message, "IN_BACK_OFF")
        assert (one.attempt, (await life(lead, one.retry_id)).id) == (2, message)
        later_ms = lead.node.time.now_ms() + 9 * HOUR_MS
        assert await reschedule(lead, message, group=GROUP, due_ms=[later_ms]) == ["CHANGED"]
        one = await of_group(lead, message)
        assert (STATES[one.state], one.attempt, one.until_ms) == ("IN_BACK_OFF", 2, later_ms)
        assert (await life(lead, one.retry_id)).id == message

        assert await reschedule(lead, message, group=GROUP, due_ms=[now_ms]) == ["CHANGED"]
        copies = lead.machine.queues.find(TOPIC, GROUP)
        assert copies is not None
        await until(lambda: copies.units == 1)
        stream.send(consumer_pb.ConsumeRequest(credit=consumer_pb.Credit(messages=1)))
        one = await is_in(lead, message, "IN_HAND")
        assert (one.attempt, (await life(lead, one.retry_id)).id) == (2, message)
        await stream.asked(verdict("ack", 0, queue=copies.queue))
        await is_in(lead, message, "DONE")
        await stream.leave()
        assert await kinds(lead, message) == [
            ("scheduled", ""),
            ("rescheduled", ""),
            ("rescheduled", ""),
            ("released", ""),
            ("delivered", GROUP),
            ("nacked", GROUP),
            ("retried", GROUP),
            ("rescheduled", GROUP),
            ("rescheduled", GROUP),
            ("released", GROUP),
            ("delivered", GROUP),
            ("acked", GROUP),
        ]

    led(tmp_path, act)
