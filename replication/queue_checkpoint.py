"""The queues' and groups' parts of a checkpoint, each kept until something of it changes.

A part is a Checkpoint with that queue or group alone, serialized: laid end to end, parts are one Checkpoint.
"""

from __future__ import annotations

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.groups import Acknowledged
from tarry.replication.ready_queue import ReadyQueue


def queue_part(queue: ReadyQueue) -> bytes:
    """Return the queue's part. Of one that was deleted nothing changes any more."""
    if queue.deleted and queue.captured is not None:
        return queue.captured[1]
    pace = queue.pace
    told = (
        queue.deleted, queue.first, queue.units, queue.misfires_dropped, queue.settings,
        pace.anchor, pace.at_us, pace.catch_up_end,
    )  # fmt: skip
    if queue.captured is None or queue.captured[0] != told:
        queue.captured = told, _serialized(queue)
    return queue.captured[1]


def _serialized(queue: ReadyQueue) -> bytes:
    state = queue.capture()
    checkpoint = log_pb.QueueCheckpoint(
        queue=queue.queue,
        topic=queue.topic,
        group=queue.group,
        first=state.first,
        units=state.units,
        crc=state.crc,
        deleted=queue.deleted,
        settings=queue.settings,
        misfires_dropped=queue.misfires_dropped,
        pace_anchor=queue.pace.anchor,
        pace_at_us=queue.pace.at_us,
        pace_catch_up_end=queue.pace.catch_up_end,
    )
    return log_pb.Checkpoint(queues=[checkpoint]).SerializeToString()


def group_part(group: str, queue: int, acknowledged: Acknowledged) -> bytes:
    """Return the part of a group in a queue."""
    if not acknowledged.captured:
        checkpoint = log_pb.GroupCheckpoint(
            group=group, queue=queue, floor=acknowledged.floor, acked=acknowledged.serialize()
        )
        acknowledged.captured = log_pb.Checkpoint(groups=[checkpoint]).SerializeToString()
    return acknowledged.captured
