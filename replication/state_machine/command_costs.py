"""Estimates of how long a command will hold the event loop, made by the leader before it proposes it.

Only the size of entries follows from it, nothing that applying does: replicas need not agree. Bytes are not
in it: an entry's are bounded by themselves.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from google.protobuf.message import Message

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.wheel.state import HOUR_MS

# CPU time of one core of the machine that the turns' bounds are set on, in nanoseconds.
COMMAND_NS: Final = 50_000
MESSAGE_NS: Final = 1_000
"""Of a schedule, with its record and its row of the ledger."""
TOPIC_NS: Final = 10_000
"""For each topic that a schedule names: to make it, or to append to its ready queue."""
HOUR_NS: Final = 2_000
"""For each hour that a schedule or a cancel touches."""
OFFSET_NS: Final = 200
"""Of an ack."""
COPY_NS: Final = 5_000
"""Of an ack in a retry queue, for whose row of the ledger the copy is read."""
RETRY_NS: Final = 4_000
RELEASE_NS: Final = 250
TRIM_NS: Final = 2_000
"""Of an hour, or a queue."""


def cost_us(command: Message, *, copies: bool = False) -> int:
    """Return how long applying the command is thought to take, in microseconds.

    ``copies``: it is an ack of offsets of a retry queue.
    """
    return (COMMAND_NS + _more_ns(command, copies=copies)) // 1_000


def _more_ns(command: Message, *, copies: bool) -> int:
    match command:
        case log_pb.ScheduleCommand(request=request):
            hours = HOUR_NS * _hours(command.due_ms or request.due_ms)
            return len(request.records) * MESSAGE_NS + len(request.topics) * TOPIC_NS + hours
        case log_pb.CancelCommand():
            ids = np.frombuffer(command.hour, dtype="<u4")
            return len(ids) * MESSAGE_NS + HOUR_NS * len(np.unique(ids))
        case log_pb.AckCommand():
            return (COPY_NS if copies else OFFSET_NS) * len(command.offset) // 8
        case log_pb.RetryCommand():
            return len(command.records) * (RETRY_NS + HOUR_NS)
        case log_pb.ReleaseCommand():
            return RELEASE_NS * (command.count + len(command.hour) // 4)
        case log_pb.TrimCommand():
            return TRIM_NS * (len(command.hour) // 4 + len(command.queue) // 4)
        case _:
            return 0


def _hours(due_ms: bytes) -> int:
    """Return how many hours the due times can be of, at most."""
    if len(due_ms) <= 8:
        return 1
    due = np.frombuffer(due_ms, dtype="<i8")
    return min(len(due), int(due.max()) // HOUR_MS - int(due.min()) // HOUR_MS + 1)
