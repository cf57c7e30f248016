"""Retries and dead letters of deliveries that were not acknowledged.

A retry is a message in the wheel, for its group alone; there is no second timer.
The leader builds the copies, so that replicas need not read a record to apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tarry.node.delivery.policy import Policy, back_off_ms
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.dead_letters import IDEMPOTENCY_KEY, NO_TOPIC
from tarry.proto.message_id import MessageId
from tarry.proto.tarry_message_pb2 import Record, Retried, RetryReason
from tarry.replication.state_machine.ready_queue import ReadyQueue


class Delay(NamedTuple):
    """Time until the next delivery, as a nack says."""

    ms: int | None = None
    """None: by the policy's back-off."""
    at_least: bool = False
    """The back-off counts where it is longer."""

    def wait_ms(self, back_off_ms: int) -> int:
        """Return the wait, where the back-off has so much."""
        if self.ms is None:
            return back_off_ms
        return max(self.ms, back_off_ms) if self.at_least else self.ms


BY_BACK_OFF: Final = Delay()

RETRY_BYTES: Final = 1 << 10
"""Bytes of a copy beside its record, at most: names and a history."""

HOURS_MAX: Final = 64
"""Read from with one command, or in one turn: to open an hour takes some 0.05 ms, and so many stay open."""


def fitting(sizes: NDArray[np.uint32], bytes_max: int) -> int:
    """Return how many of the first records, sizes of shape (n,), to copy with one command; at least one."""
    ends = np.cumsum(sizes.astype(np.int64) + RETRY_BYTES)
    return max(1, int(np.searchsorted(ends, bytes_max, side="right")))


def within_hours(hour: NDArray[np.uint32]) -> int:
    """Return how many of the first messages, hours of shape (n,), are of no more than HOURS_MAX hours."""
    first = np.sort(np.unique(hour, return_index=True)[1])
    return int(first[HOURS_MAX]) if len(first) > HOURS_MAX else len(hour)


def retried(queue: ReadyQueue, group: str, unit: np.void, record: bytes, reason: RetryReason) -> Retried:
    """Return the copy of a delivery for its next attempt.

    Args:
        queue: the queue of the delivery, the topic's or the group's retry queue of it.
        unit: its ready unit.
        record: what the delay log holds: a Record, or in a retry queue a Retried.
    """
    if queue.group:
        copy = Retried.FromString(record)
        copy.attempt += 1
        copy.reason = reason
        return copy
    return Retried(
        record=record,
        hour=int(unit["hour"]),
        global_index=int(unit["global_index"]),
        due_ms=int(unit["due_ms"]),
        attempt=2,
        topic=queue.topic,
        group=group,
        reason=reason,
    )


def dead_letter(shard: int, copy: Retried) -> bytes:
    """Return the record that goes to the dead-letter topic: the first one, its history in properties."""
    record = Record.FromString(copy.record)
    record.properties["tarry.origin_id"] = str(MessageId(shard, copy.hour, copy.global_index))
    record.properties["tarry.origin_topic"] = copy.topic
    record.properties["tarry.origin_due_ms"] = str(copy.due_ms)
    record.properties["tarry.group"] = copy.group
    record.properties["tarry.attempts"] = str(copy.attempt - 1)
    record.properties["tarry.reason"] = RetryReason.Name(copy.reason).removeprefix("RETRY_REASON_")
    if record.idempotency_key:  # it counts for the topic of the first message, not for that of its letters
        record.properties[IDEMPOTENCY_KEY] = record.idempotency_key
        record.ClearField("idempotency_key")
        record.ClearField("scheduled_digest")
    return record.SerializeToString(deterministic=True)


def commands(
    shard: int,
    queue: ReadyQueue,
    group: str,
    offsets: NDArray[np.uint64],
    units: NDArray[np.void],
    records: Sequence[bytes],
    reason: RetryReason,
    delay: Delay,
    now_ms: int,
    policy: Policy,
    no_more: bool = False,
) -> list[log_pb.RetryCommand]:
    """Return the commands that retry the deliveries, or bury or drop those whose attempts are used up.

    Args:
        offsets: shape (n,); units and records have one for each.
        delay: until the next delivery.
        no_more: their attempts are used up, however many there were.
    """
    chosen: dict[bool, list[int]] = {False: [], True: []}
    due: list[int] = []
    bodies: list[bytes] = []
    for position, (unit, record) in enumerate(zip(units, records, strict=True)):
        copy = retried(queue, group, unit, record, reason)
        dead = no_more or copy.attempt > policy.attempts_max
        wait = delay.wait_ms(back_off_ms(policy.back_off, copy.attempt - 1))
        chosen[dead].append(position)
        due.append(now_ms if dead else now_ms + wait)
        bodies.append(dead_letter(shard, copy) if dead else copy.SerializeToString())
    dropped = []
    if policy.dead_letter_topic == NO_TOPIC and (gone := chosen.pop(True)):
        offset = offsets[gone].astype("<u8").tobytes()
        dropped.append(_drop(queue, group, offset, now_ms, reason))
    return dropped + [
        log_pb.RetryCommand(
            group=group,
            queue=queue.queue,
            offset=offsets[positions].astype("<u8").tobytes(),
            due_ms=np.array(due, dtype="<i8")[positions].tobytes(),
            tag_mask=units["tag_mask"][positions].astype("<u8").tobytes(),
            lane=units["lane"][positions].tobytes() if units["lane"].any() else b"",
            records=[bodies[p] for p in positions],
            target_topic=policy.dead_letter_topic if dead else queue.topic,
            target_group="" if dead else group,
            now_ms=now_ms,
            reason=reason,
        )
        for dead, positions in chosen.items()
        if positions
    ]


def _drop(
    queue: ReadyQueue, group: str, offset: bytes, now_ms: int, reason: RetryReason
) -> log_pb.RetryCommand:
    return log_pb.RetryCommand(
        group=group, queue=queue.queue, offset=offset, now_ms=now_ms, reason=reason, dropped=True
    )
