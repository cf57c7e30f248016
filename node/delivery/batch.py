"""Responses to consumers: due units become one columnar response, the stored records as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.dead_letters import dead_letter_topic
from tarry.proto.tarry_message_pb2 import Retried
from tarry.replication.state_machine.lanes import queue_of
from tarry.replication.state_machine.queues import Queues
from tarry.replication.state_machine.ready_queue import ReadyQueue, released_ms
from tarry.wheel.state import HOUR_MS
from tarry.wheel.wheel import Wheel

Select: TypeAlias = Callable[[NDArray[np.uint64], Sequence[bytes]], NDArray[np.bool_]]
"""Flags records, shape (n,), of offsets, shape (n,), that a group is to have."""
Read: TypeAlias = Callable[[NDArray[np.uint32], NDArray[np.uint32]], Sequence[bytes | None]]


class DeliveryBatch(NamedTuple):
    """One response's deliveries to one consumer; columns of shape (n,)."""

    shard: int
    queue: int
    units: NDArray[np.void]  # dtype waiting_messages.WAITING
    hour: NDArray[np.uint32]  # with global_index: of the first message, also for a retry
    global_index: NDArray[np.uint32]
    attempt: NDArray[np.uint32]
    order_key: NDArray[np.uint32] | None  # lanes, 0: none; None: retries, with offsets of their own queue
    records: list[bytes]
    passed: NDArray[np.uint64]  # offsets that the exact check of the filter left out
    damaged: NDArray[np.void]  # units whose record does not match its checksum
    size_bytes: int  # of the records

    def first(self, count: int) -> DeliveryBatch:
        """Return the batch of its first deliveries alone; the same is passed and damaged."""
        records = self.records[:count]
        return self._replace(
            units=self.units[:count],
            hour=self.hour[:count],
            global_index=self.global_index[:count],
            attempt=self.attempt[:count],
            order_key=None if self.order_key is None else self.order_key[:count],
            records=records,
            size_bytes=sum(map(len, records)),
        )


def index_of(wheel: Wheel, units: NDArray[np.void]) -> NDArray[np.void]:
    """Return what the delay index says of the units of a queue, shape (n,)."""
    return wheel.units(units["hour"], units["global_index"])


def belongs(
    queues: Queues, queue: ReadyQueue, units: NDArray[np.void], index: NDArray[np.void]
) -> NDArray[np.bool_]:
    """Return which units of a queue, shape (n,), are what the delay index says of the same messages.

    Where the two differ, one of them is damaged: the message may be another topic's, or due at another time.
    """
    topic = queue_of(index["topic"])
    same: NDArray[np.bool_] = topic == queue.queue
    if not same.all():
        for other in np.unique(topic[~same]).tolist():
            if other < len(queues) and dead_letter_topic(queues[other].topic) == queue.topic:
                same |= topic == other  # it has misfired
    due_ms = units["hour"].astype(np.int64) * HOUR_MS + index["due_in_hour_ms"]
    same &= due_ms == units["due_ms"]
    return same


def build(
    shard: int, queue: ReadyQueue, units: NDArray[np.void], read: Read, select: Select | None
) -> DeliveryBatch:
    """Read the records of the units; leave out what is damaged or not selected; None: all are."""
    hour, global_index = units["hour"], units["global_index"]
    records = read(hour, global_index)
    attempt = np.ones(len(units), dtype=np.uint32)
    passed = np.empty(0, dtype=np.uint64)
    damaged = units[:0]
    if None in records:
        whole = np.array([record is not None for record in records], dtype=np.bool_)
        damaged = units[~whole]
        units, hour, global_index, attempt = units[whole], hour[whole], global_index[whole], attempt[whole]
        records = [record for record in records if record is not None]
    sound = cast("list[bytes]", records)
    if queue.group:
        copies = [Retried.FromString(record) for record in sound]
        hour = np.array([copy.hour for copy in copies], dtype=np.uint32)
        global_index = np.array([copy.global_index for copy in copies], dtype=np.uint32)
        attempt = np.array([copy.attempt for copy in copies], dtype=np.uint32)
        sound = [copy.record for copy in copies]
    if select is not None:
        matches = select(units["offset"], sound)
        passed = units["offset"][~matches]
        units, hour, global_index, attempt = (
            units[matches], hour[matches], global_index[matches], attempt[matches],
        )  # fmt: skip
        sound = [record for record, match in zip(sound, matches.tolist(), strict=True) if match]
    return DeliveryBatch(
        shard,
        queue.queue,
        units,
        hour,
        global_index,
        attempt,
        None if queue.group else units["lane"],
        sound,
        passed,
        damaged,
        sum(map(len, sound)),
    )


def within(ends: NDArray[np.int64], bytes_max: int) -> int:
    """Return how many records, shape (n,), go together: their bytes up to and with each; one at least."""
    return min(len(ends), max(1, int(np.searchsorted(ends, bytes_max, side="right"))))


def serialize(
    batch: DeliveryBatch,
    topic: str,
    stamp: consumer_pb.DispatchStamp,
    delivered_ms: int,
    delay_ms: int = 0,
) -> bytes:
    """Return the batch as a serialized ConsumeResponse, its due times later by the delay of the group."""
    (duplicates,) = batch.units["maybe_duplicate"].nonzero()
    columns = log_pb.DeliveriesColumns(
        shard=batch.shard,
        queue=batch.queue,
        topic=topic,
        offset=batch.units["offset"].tobytes(),
        hour=batch.hour.astype("<u4", copy=False).tobytes(),
        global_index=batch.global_index.astype("<u4", copy=False).tobytes(),
        due_ms=(batch.units["due_ms"] + delay_ms).tobytes(),
        released_ms=released_ms(batch.units).tobytes(),
        attempt=batch.attempt.tobytes() if np.count_nonzero(batch.attempt != 1) else b"",
        maybe_duplicate=duplicates.astype("<u4").tobytes(),
        records=batch.records,
        stamp=stamp,
        ordered=bool(np.count_nonzero(batch.units["lane"])),
        delay_ms=delay_ms,
        delivered_ms=delivered_ms,
    )
    return log_pb.ConsumedColumns(deliveries=columns).SerializeToString()
