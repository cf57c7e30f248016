"""Cancelling of released messages: what a committed CancelReleasedCommand does.

    the queue's offsets     cancelled ─► no group that is made later, or moved back, gets them
    groups but `had_by`     acknowledged ─► what waits behind them goes on
    the wheel               withdrawn ─► `Get` and a repeated cancel know

Applying reads no unit and no record, and an offset that is trimmed, cancelled or not there yet is an outcome.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_producer_pb2 as producer_pb
from tarry.proto.dead_letters import REDRIVE_GROUP
from tarry.proto.ledger.schema import Kind
from tarry.proto.reasons import Reason
from tarry.replication.state_machine.events import Event, Events
from tarry.replication.state_machine.outcomes import Cancelled
from tarry.replication.state_machine.queues import CHECKS, Queues
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.columns import first_rows
from tarry.wheel.wheel import Wheel


def cancel(
    command: log_pb.CancelReleasedCommand, wheel: Wheel, queues: Queues, events: Events
) -> Cancelled | Refusal:
    """Apply the command."""
    offset = np.frombuffer(command.offset, dtype="<u8")
    hour = np.frombuffer(command.hour, dtype="<u4")
    global_index = np.frombuffer(command.global_index, dtype="<u4")
    due_ms = np.frombuffer(command.due_ms, dtype="<i8")
    if not len(offset) == len(hour) == len(global_index) == len(due_ms):
        return Refusal(Reason.COLUMNS_DIFFER, "the command's columns differ in length")
    if command.queue >= len(queues) or queues[command.queue].deleted or queues[command.queue].topic == CHECKS:
        return Refusal(Reason.QUEUE_UNKNOWN, f"there is no queue {command.queue}, or its topic was deleted")
    outcomes = _outcomes(queues, command.queue, offset)
    fresh = np.flatnonzero(outcomes == producer_pb.CANCEL_OUTCOME_CANCELLED)
    if len(fresh):
        chosen = offset[fresh]
        groups = queues.cancel(command.queue, BitMap64(chosen.tolist()), set(command.had_by))
        wheel.withdraw(hour[fresh], global_index[fresh])
        queues.unblock_cancelled(hour[fresh], global_index[fresh])
        event = Event(
            Kind.CANCELLED,
            len(fresh),
            command.now_ms,
            command.queue,
            hour=hour[fresh],
            global_index=global_index[fresh],
            due_ms=due_ms[fresh],
            offset=chosen,
        )
        for group in groups if command.had_by else (None,):
            attempt = None if group is None else np.ones(len(fresh), np.int32)
            events.add(event._replace(group=group, attempt=attempt))
    return Cancelled(outcomes)


def _outcomes(queues: Queues, queue: int, offset: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Return the CancelOutcome of each offset; of one that is named twice the second is cancelled already."""
    outcomes = np.full(len(offset), producer_pb.CANCEL_OUTCOME_ALREADY_CANCELLED, np.uint8)
    outcomes[first_rows(offset) if len(offset) else ()] = producer_pb.CANCEL_OUTCOME_CANCELLED
    redriven = queues.acknowledged.get((REDRIVE_GROUP, queue))
    if redriven is not None:  # since the leader asked: the letter's copy is on its way
        outcomes[redriven.contains(offset)] = producer_pb.CANCEL_OUTCOME_ALREADY_DELIVERED
    outcomes[queues.cancelled.contains(queue, offset)] = producer_pb.CANCEL_OUTCOME_ALREADY_CANCELLED
    outcomes[offset < np.uint64(queues[queue].first)] = producer_pb.CANCEL_OUTCOME_ALREADY_DONE
    outcomes[offset >= np.uint64(queues[queue].units)] = producer_pb.CANCEL_OUTCOME_NOT_FOUND
    return outcomes
