"""Estimates of how long a command will hold the event loop, made by the leader before it proposes it.

Only the size of entries follows from it, nothing that applying does: replicas need not agree. Bytes are not
in it, for an entry's are bounded by themselves, but for records that are taken from the state.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from google.protobuf.message import Message

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_consumer_pb2 import StartAt
from tarry.replication.state_machine.queue_checksums import block_starts
from tarry.wheel.state import HOUR_MS

# CPU time of one core of the machine that the turns' bounds are set on, in nanoseconds.
COMMAND_NS: Final = 50_000
MESSAGE_NS: Final = 1_000
"""Of a schedule, with its record and its row of the ledger."""
UNREAD_NS: Final = 2_000
"""Of a schedule's message where the command has no hashes of keys: each replica looks into the records."""
TOPIC_NS: Final = 10_000
"""For each topic that a schedule names: to make it, or to append to its ready queue."""
HOUR_NS: Final = 2_000
"""For each hour that a schedule or a cancel touches."""
WITHDRAWN_NS: Final = 2_000
"""Of a message cancelled after its release, in an hour of its own; each group of its topic costs more."""
GROUP_NS: Final = 3_000
OFFSET_NS: Final = 200
"""Of an ack."""
COPY_NS: Final = 5_000
"""Of an ack or a retry in a retry queue, for whose row of the ledger the copy is read."""
BLOCK_NS: Final = 20_000
"""For each block of the queue that is read for the ledger; one of a retry queue is read for its lanes too."""
SEARCH_NS: Final = 250_000
"""Of a group that begins at a time: the offset is searched for in the queue."""
RETRY_NS: Final = 4_000
RESCHEDULE_NS: Final = 500_000
"""Of a reschedule, whatever it names: ids and places are looked up, units cancelled and appended."""
MOVE_NS: Final = 100_000
"""Of a reschedule, for each message: up to three blocks of pairs are copied (wheel/sorted_pairs.py)."""
FIRE_NS: Final = 150_000
"""Of a plan of one schedule: its state is read and written."""
FORGET_NS: Final = 20_000
"""Of each schedule that a deletion names by its number."""
FIRED_NS: Final = 30_000
"""Of each of a plan's fires."""
RECORD_BYTE_NS: Final = 2
"""Of a record that a fire takes from the state: the entry's bytes do not have it."""
TRANSACTION_NS: Final = 150_000
"""Of a prepare, an end or a check: a unit is cancelled, another appended, a state is read and written."""
RELEASE_NS: Final = 250
TRIM_NS: Final = 2_000
"""Of a queue."""
DROP_NS: Final = 30_000
"""Of an hour to which messages were moved."""
SWEEP_NS: Final = 1_000_000
"""Of a trim that names hours: memory of moved messages is freed (wheel/moved_messages.py)."""


def cost_us(command: Message, *, copies: bool = False, groups: int = 0, record_bytes: int = 0) -> int:
    """Return how long applying the command is thought to take, in microseconds.

    ``copies``: it is an ack or a retry of offsets, ascending, of a retry queue.
    ``groups``: of the queue of which it cancels offsets.
    ``record_bytes``: of the records of a FireCommand's messages.
    """
    beside_ns = GROUP_NS * groups + RECORD_BYTE_NS * record_bytes
    return (COMMAND_NS + _more_ns(command, copies=copies) + beside_ns) // 1_000


def _more_ns(command: Message, *, copies: bool) -> int:
    match command:
        case log_pb.ScheduleCommand(request=request):
            hours = HOUR_NS * _hours(command.due_ms or request.due_ms)
            message_ns = MESSAGE_NS + (0 if command.keys_noted else UNREAD_NS)
            return len(request.records) * message_ns + len(request.topics) * TOPIC_NS + hours
        case log_pb.CancelCommand():
            ids = np.frombuffer(command.hour, dtype="<u4")
            return len(ids) * MESSAGE_NS + HOUR_NS * len(np.unique(ids))
        case log_pb.RescheduleCommand():
            return RESCHEDULE_NS + len(command.records) * (MOVE_NS + HOUR_NS)
        case log_pb.CancelReleasedCommand():
            return WITHDRAWN_NS * (len(command.offset) // 8)
        case log_pb.AckCommand() | log_pb.RetryCommand(dropped=True):
            offset_ns = COPY_NS if copies else OFFSET_NS
            return offset_ns * (len(command.offset) // 8) + _blocks_ns(command.offset, copies=copies)
        case log_pb.RetryCommand():
            record_ns = RETRY_NS + HOUR_NS + (COPY_NS if copies else 0)
            return len(command.records) * record_ns + _blocks_ns(command.offset, copies=copies)
        case log_pb.RecurringCommand() | log_pb.FireCommand():
            return _recurring_ns(command)
        case log_pb.PrepareCommand() | log_pb.EndCommand() | log_pb.CheckCommand():
            return _transactions_ns(command)
        case log_pb.SubscribeCommand(start=start):
            return SEARCH_NS if start.at == StartAt.START_AT_TIME else 0
        case log_pb.ReleaseCommand():
            return RELEASE_NS * (command.count + len(command.hour) // 4)
        case log_pb.TrimCommand():
            sweep_ns = SWEEP_NS if command.hour else 0
            return sweep_ns + DROP_NS * (len(command.hour) // 4) + TRIM_NS * (len(command.queue) // 4)
        case _:
            return 0


def _recurring_ns(command: log_pb.RecurringCommand | log_pb.FireCommand) -> int:
    if isinstance(command, log_pb.RecurringCommand):
        return FORGET_NS * len(command.numbers)
    fires = sum(len(plan.fires) for plan in command.plans)
    return FIRE_NS * len(command.plans) + (FIRED_NS + HOUR_NS) * fires


def _transactions_ns(command: log_pb.PrepareCommand | log_pb.EndCommand | log_pb.CheckCommand) -> int:
    if isinstance(command, log_pb.CheckCommand):
        return TRANSACTION_NS * len(command.checks) + OFFSET_NS * (len(command.offset) // 8)
    return TRANSACTION_NS


def _blocks_ns(offset: bytes, *, copies: bool) -> int:
    blocks = len(block_starts(np.frombuffer(offset, dtype="<u8")))
    return BLOCK_NS * blocks * (2 if copies else 1)


def _hours(due_ms: bytes) -> int:
    """Return how many hours the due times can be of, at most."""
    if len(due_ms) <= 8:
        return 1
    due = np.frombuffer(due_ms, dtype="<i8")
    return min(len(due), int(due.max()) // HOUR_MS - int(due.min()) // HOUR_MS + 1)
