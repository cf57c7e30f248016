"""What becomes of a delivery that was not acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tarry.node.config import Delivery
from tarry.node.delivery import batch as batching
from tarry.node.delivery import retries
from tarry.node.delivery.policy import Policy
from tarry.node.delivery.retries import BY_BACK_OFF, Delay
from tarry.node.delivery.selection import Selection
from tarry.node.delivery.waiting_messages import WAITING
from tarry.proto.dead_letters import IDEMPOTENCY_KEY
from tarry.proto.tarry_consumer_pb2 import ConsumeResponse, DispatchStamp
from tarry.proto.tarry_log_pb2 import KeyedRecord
from tarry.proto.tarry_message_pb2 import Record, Retried, RetryReason
from tarry.replication.state_machine.ready_queue import UNIT, ReadyQueue
from tests.node.policies import policy, table

POLICY = policy(attempts_max=2, back_off=table(10, 70))
FIRST = Record(body=b"hello", properties={"a": "b"}, tags=["red"]).SerializeToString()


@pytest.fixture
def queues(tmp_path: Path) -> Iterator[tuple[ReadyQueue, ReadyQueue]]:
    main, again = ReadyQueue(tmp_path, 0, "t"), ReadyQueue(tmp_path, 1, "t", "g")
    for queue in (main, again):
        units = np.zeros(2, dtype=UNIT)
        units["hour"] = 500_000 + queue.queue
        units["global_index"] = [4, 5]
        units["due_ms"] = [77, 78]
        queue.append(units)
    yield main, again
    main.close()
    again.close()


def build(queue: ReadyQueue, record: bytes, delay: Delay = BY_BACK_OFF, policy: Policy = POLICY) -> list:
    offset = np.array([1], dtype=np.uint64)
    return retries.commands(
        3,
        queue,
        "g",
        offset,
        queue.at(offset),
        [record],
        RetryReason.RETRY_REASON_NACKED,
        delay,
        1_000,
        policy,
    )


def test_the_first_retry_wraps_the_record_and_remembers_the_message(queues: tuple) -> None:
    (command,) = build(queues[0], FIRST)
    copy = Retried.FromString(command.records[0])
    assert (copy.record, copy.attempt, copy.hour, copy.global_index) == (FIRST, 2, 500_000, 5)
    assert (copy.topic, copy.group, copy.due_ms) == ("t", "g", 78)
    assert (command.target_topic, command.target_group) == ("t", "g")
    assert np.frombuffer(command.due_ms, "<i8").tolist() == [1_010]


def test_a_nack_may_say_how_long(queues: tuple) -> None:
    (command,) = build(queues[0], FIRST, Delay(5))
    assert np.frombuffer(command.due_ms, "<i8").tolist() == [1_005]


@pytest.mark.parametrize(("delay_ms", "waits_ms"), [(None, 10), (0, 10), (9, 10), (11, 11)])
def test_a_nack_may_say_how_long_at_least(queues: tuple, delay_ms: int | None, waits_ms: int) -> None:
    """A receiver that is down, and asks for little, does not use up the attempts."""
    (command,) = build(queues[0], FIRST, Delay(delay_ms, at_least=True))
    assert np.frombuffer(command.due_ms, "<i8").tolist() == [1_000 + waits_ms]


def test_a_nack_may_say_that_there_are_no_more_attempts(queues: tuple) -> None:
    offset = np.array([1], dtype=np.uint64)
    nacked = RetryReason.RETRY_REASON_NACKED
    units = queues[0].at(offset)
    (last,) = retries.commands(
        3, queues[0], "g", offset, units, [FIRST], nacked, Delay(5), 1_000, POLICY, no_more=True
    )
    assert (last.target_topic, last.target_group) == ("dlq.g.t", "")
    assert np.frombuffer(last.due_ms, "<i8").tolist() == [1_000]
    assert Record.FromString(last.records[0]).properties["tarry.attempts"] == "1"


def test_after_the_last_attempt_it_is_a_dead_letter_with_its_history(queues: tuple) -> None:
    (command,) = build(queues[0], FIRST)
    (last,) = build(queues[1], command.records[0])
    assert (last.target_topic, last.target_group) == ("dlq.g.t", "")
    record = Record.FromString(last.records[0])
    assert record.body == b"hello"
    assert record.properties["a"] == "b"
    assert record.properties["tarry.attempts"] == "2"
    assert record.properties["tarry.origin_topic"] == "t"
    assert record.properties["tarry.group"] == "g"
    assert record.properties["tarry.reason"] == "NACKED"
    assert record.properties["tarry.origin_due_ms"] == "78"


def test_an_idempotency_key_stays_with_retries_and_a_dead_letter_has_it_as_a_property(queues: tuple) -> None:
    first = Record(body=b"hello", idempotency_key="order-7", scheduled_digest=bytes(16))
    (command,) = build(queues[0], first.SerializeToString())
    assert Record.FromString(Retried.FromString(command.records[0]).record) == first
    assert list(KeyedRecord.FromString(command.records[0]).idempotency_key) == []  # it counts for no topic
    (last,) = build(queues[1], command.records[0])
    letter = Record.FromString(last.records[0])
    assert (letter.idempotency_key, letter.scheduled_digest) == ("", b"")
    assert letter.properties[IDEMPOTENCY_KEY] == "order-7"


def test_a_dead_letter_goes_where_the_policy_says_or_nowhere(queues: tuple) -> None:
    (named,) = build(queues[0], FIRST, policy=policy(attempts_max=1, dead_letter_topic="dlq.shared"))
    assert (named.target_topic, named.target_group, named.dropped) == ("dlq.shared", "", False)
    (gone,) = build(queues[0], FIRST, policy=policy(attempts_max=1, dead_letter_topic="none"))
    assert (gone.dropped, gone.group, gone.offset, len(gone.records)) == (True, "g", named.offset, 0)
    assert (gone.reason, gone.target_topic) == (named.reason, "")
    (again,) = build(queues[0], FIRST, policy=policy(attempts_max=2, dead_letter_topic="none"))
    assert (again.dropped, again.target_group) == (False, "g")


def waiting(queue: ReadyQueue) -> np.ndarray:
    units = np.zeros(queue.units, dtype=WAITING)
    for name in UNIT.names or ():
        units[name] = queue.read(0, queue.units)[name]
    units["offset"] = np.arange(queue.units)
    return units


def test_a_delivery_is_what_the_client_parses(queues: tuple) -> None:
    units = waiting(queues[0])
    units["maybe_duplicate"] = [0, 1]
    batch = batching.build(3, queues[0], units, lambda h, g: [FIRST, FIRST], None)
    raw = batching.serialize(batch, "t", DispatchStamp(node="n1", term=4), 90)
    deliveries = ConsumeResponse.FromString(raw).deliveries
    assert list(deliveries.offset) == [0, 1]
    assert list(deliveries.global_index) == [4, 5]
    assert list(deliveries.due_ms) == [77, 78]
    assert list(deliveries.maybe_duplicate) == [1]
    assert list(deliveries.attempt) == []
    assert (deliveries.stamp.term, deliveries.delivered_ms) == (4, 90)
    assert list(deliveries.records) == [FIRST, FIRST]
    assert not deliveries.ordered
    units["lane"] = [0, 7]
    batch = batching.build(3, queues[0], units, lambda h, g: [FIRST, FIRST], None)
    raw = batching.serialize(batch, "t", DispatchStamp(node="n1", term=4), 90)
    assert ConsumeResponse.FromString(raw).deliveries.ordered


def test_a_retry_is_delivered_under_the_first_messages_id(queues: tuple) -> None:
    copies = [
        Retried(record=FIRST, hour=9, global_index=8, attempt=attempt).SerializeToString()
        for attempt in (2, 3)
    ]
    batch = batching.build(3, queues[1], waiting(queues[1]), lambda h, g: copies, None)
    assert (batch.hour.tolist(), batch.global_index.tolist()) == ([9, 9], [8, 8])
    assert batch.attempt.tolist() == [2, 3]
    assert batch.records == [FIRST, FIRST]


def test_a_damaged_record_is_left_out_and_named(queues: tuple) -> None:
    batch = batching.build(3, queues[0], waiting(queues[0]), lambda h, g: [None, FIRST], None)
    assert batch.units["offset"].tolist() == [1]
    assert len(batch.damaged) == 1


def test_a_tag_that_only_shares_its_bit_is_not_delivered(queues: tuple) -> None:
    blue = Record(tags=["blue"]).SerializeToString()
    selection = Selection(Delivery(), "g", {})
    selection.use(frozenset({"red"}), None)
    batch = batching.build(3, queues[0], waiting(queues[0]), lambda h, g: [FIRST, blue], selection.of(0))
    assert batch.units["offset"].tolist() == [0]
    assert batch.passed.tolist() == [1]


def test_a_batch_is_cut_at_its_bytes_but_never_to_nothing() -> None:
    ends = np.array([10, 20])
    assert [batching.within(ends, most) for most in (1, 10, 19, 20, 21)] == [1, 1, 1, 2, 2]
    assert batching.within(ends[:0], 10) == 0
