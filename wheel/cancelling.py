"""Cancelling, and the state of one message: both follow from the cut and from what is gone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tarry.wheel.grouping import distinct, groups
from tarry.wheel.hour_partition import HourPartition
from tarry.wheel.hour_wheel import HourWheel
from tarry.wheel.state import HOUR_MS, CancelOutcome, Cut, Flags, MessageState, Numbers


def cancel(hours: HourWheel, cut: Cut, hour: Numbers, global_index: Numbers) -> NDArray[np.uint8]:
    """See `Wheel.cancel`."""
    outcomes = np.full(len(hour), CancelOutcome.NOT_FOUND, np.uint8)
    for at, rows in groups(hour):
        partition = hours.find(at)
        if partition is None:
            continue
        chosen = global_index[rows]
        exists = chosen < partition.units
        known = chosen[exists]
        cancelled = partition.is_cancelled(known)
        pending = ~partition.is_gone(known) & ~are_released(partition, cut, known)
        fresh = distinct(known[pending])
        if len(fresh):
            partition.lose(fresh)
            hours.pending.add(at, -len(fresh))
            hours.topics.add(partition.log.units_at(fresh)["topic"], -1)
        answers = outcomes[rows]
        answers[exists] = np.where(
            cancelled | pending, np.uint8(CancelOutcome.CANCELLED), np.uint8(CancelOutcome.ALREADY_RELEASED)
        )
        outcomes[rows] = answers
    return outcomes


def cancelled(hours: HourWheel, hour: Numbers, global_index: Numbers) -> Flags:
    """See `Wheel.cancelled`."""
    flags = np.zeros(len(hour), np.bool_)
    for at, rows in groups(hour):
        partition = hours.find(at)
        if partition is not None:
            flags[rows] = partition.is_cancelled(global_index[rows])
    return flags


def state_of(hours: HourWheel, cut: Cut, hour: int, global_index: int) -> MessageState:
    """See `Wheel.state`."""
    partition = hours.find(hour)
    if partition is None or global_index >= partition.units:
        return MessageState.NOT_FOUND
    if global_index in partition.gone:
        return MessageState.RELEASED if global_index in partition.overtaken else MessageState.CANCELLED
    released = are_released(partition, cut, np.array([global_index], np.uint32))
    return MessageState.RELEASED if bool(released[0]) else MessageState.PENDING


def are_released(partition: HourPartition, cut: Cut, global_index: Numbers) -> Flags:
    """Which of some units of an hour, shape (n,), are behind the cut."""
    due = partition.log.units_at(global_index)["due_in_hour_ms"] + np.int64(partition.hour * HOUR_MS)
    return cut.has_passed(due, global_index)
