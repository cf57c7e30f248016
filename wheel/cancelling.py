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
    far = hours.far.find(hour, global_index)
    is_far = far >= 0
    if bool(is_far.any()):
        rows = distinct(far[is_far])
        units = hours.far.lose(rows[~hours.far.is_gone(rows)])
        hours.topics.add(units["topic"], -1)
        outcomes[is_far] = CancelOutcome.CANCELLED  # nothing in the far log has been released
    left = np.flatnonzero(~is_far)
    for at, chosen in groups(hour[left]):
        partition = hours.written(at)
        if partition is not None:
            rows_of_hour = left[chosen]
            outcomes[rows_of_hour] = _cancel_of(hours, partition, cut, global_index[rows_of_hour])
    return outcomes


def _cancel_of(hours: HourWheel, partition: HourPartition, cut: Cut, chosen: Numbers) -> NDArray[np.uint8]:
    outcomes = np.full(len(chosen), CancelOutcome.NOT_FOUND, np.uint8)
    exists = chosen < partition.units
    known = chosen[exists]
    cancelled = partition.is_cancelled(known)
    pending = ~partition.is_gone(known) & ~are_released(partition, cut, known)
    fresh = distinct(known[pending])
    if len(fresh):
        partition.lose(fresh)
        hours.count(partition.hour, -len(fresh))
        hours.topics.add(partition.log.units_at(fresh)["topic"], -1)
    outcomes[exists] = np.where(
        cancelled | pending, np.uint8(CancelOutcome.CANCELLED), np.uint8(CancelOutcome.ALREADY_RELEASED)
    )
    return outcomes


def cancelled(hours: HourWheel, hour: Numbers, global_index: Numbers) -> Flags:
    """See `Wheel.cancelled`."""
    flags = np.zeros(len(hour), np.bool_)
    far = hours.far.find(hour, global_index)
    is_far = far >= 0
    flags[is_far] = hours.far.is_gone(far[is_far])
    left = np.flatnonzero(~is_far)
    for at, chosen in groups(hour[left]):
        partition = hours.written(at)
        if partition is not None:
            flags[left[chosen]] = partition.is_cancelled(global_index[left[chosen]])
    return flags


def state_of(hours: HourWheel, cut: Cut, hour: int, global_index: int) -> MessageState:
    """See `Wheel.state`."""
    one = np.array([hour]), np.array([global_index], np.uint32)
    far = hours.far.find(*one)
    if far[0] >= 0:
        gone = bool(hours.far.is_gone(far)[0])
        return MessageState.CANCELLED if gone else MessageState.PENDING
    partition = hours.written(hour)
    if partition is None or global_index >= partition.units:
        return MessageState.NOT_FOUND
    if global_index in partition.gone:
        return MessageState.RELEASED if global_index in partition.overtaken else MessageState.CANCELLED
    released = are_released(partition, cut, one[1])
    return MessageState.RELEASED if bool(released[0]) else MessageState.PENDING


def are_released(partition: HourPartition, cut: Cut, global_index: Numbers) -> Flags:
    """Which of some units of an hour, shape (n,), are behind the cut. Raises OSError and WheelDamaged."""
    partition.prove()
    due = partition.log.units_at(global_index)["due_in_hour_ms"] + np.int64(partition.hour * HOUR_MS)
    return cut.has_passed(due, global_index)
