"""Commands for tests of the state machine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from google.protobuf.message import Message

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_message_pb2 import Record, RetryReason
from tarry.replication.state_machine import commands

NOW_MS = 1_795_000_000_000


def record(body: bytes) -> bytes:
    return Record(body=body).SerializeToString()


def far_due(hours: int = 300) -> list[int]:
    """Due times that go to the far log, one in each of so many hours from tomorrow on."""
    return [NOW_MS + (24 + hour) * 3_600_000 for hour in range(hours)]


def schedule(
    due_ms: Sequence[int],
    *,
    topic: str = "t",
    producer: str = "",
    sequence: int = 0,
    now_ms: int = NOW_MS,
    bodies: Sequence[bytes] | None = None,
) -> bytes:
    bodies = bodies or [b"%d" % due for due in due_ms]
    return commands.encode(
        log_pb.ScheduleCommand(
            now_ms=now_ms,
            request=log_pb.ScheduleColumns(
                producer=producer,
                sequence=sequence,
                topics=[topic],
                due_ms=np.array(due_ms, dtype="<i8").tobytes(),
                records=[record(body) for body in bodies],
            ),
        )
    )


def release(until_ms: int, count: int = 10_000, now_ms: int = NOW_MS) -> bytes:
    return commands.encode(log_pb.ReleaseCommand(until_ms=until_ms, count=count, now_ms=now_ms))


def subscribe(topic: str = "t", group: str = "g") -> bytes:
    return commands.encode(log_pb.SubscribeCommand(topic=topic, group=group))


def ack(offsets: Sequence[int], *, group: str = "g", queue: int = 0) -> bytes:
    column = np.array(offsets, dtype="<u8").tobytes()
    return commands.encode(log_pb.AckCommand(group=group, queue=queue, offset=column))


def retry(
    offsets: Sequence[int],
    due_ms: int,
    *,
    group: str = "g",
    queue: int = 0,
    dead: bool = False,
    lane: int = 0,
    reason: RetryReason = RetryReason.RETRY_REASON_UNSPECIFIED,
    now_ms: int = NOW_MS,
) -> bytes:
    n = len(offsets)
    return commands.encode(
        log_pb.RetryCommand(
            group=group,
            queue=queue,
            offset=np.array(offsets, dtype="<u8").tobytes(),
            due_ms=np.full(n, due_ms, dtype="<i8").tobytes(),
            tag_mask=np.zeros(n, dtype="<u8").tobytes(),
            lane=np.full(n, lane, dtype="<u4").tobytes() if lane else b"",
            records=[record(b"again")] * n,
            target_topic="dlq.g.t" if dead else "t",
            target_group="" if dead else group,
            reason=reason,
            now_ms=now_ms,
        )
    )


def admin(payload: Message) -> bytes:
    return commands.encode(payload)


def cancel(ids: Sequence[tuple[int, int]]) -> bytes:
    return commands.encode(
        log_pb.CancelCommand(
            hour=np.array([hour for hour, _ in ids], dtype="<u4").tobytes(),
            global_index=np.array([index for _, index in ids], dtype="<u4").tobytes(),
        )
    )


def trim(queues: Sequence[int], offsets: Sequence[int], hours: Sequence[int] = ()) -> bytes:
    return commands.encode(
        log_pb.TrimCommand(
            queue=np.array(queues, dtype="<u4").tobytes(),
            offset=np.array(offsets, dtype="<u8").tobytes(),
            hour=np.array(hours, dtype="<u4").tobytes(),
        )
    )
