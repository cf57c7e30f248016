"""Reading messages by their ids: those in the far log together, of the others an hour's together."""

from __future__ import annotations

import numpy as np

from tarry.wheel.delay_log import UNIT, Places
from tarry.wheel.grouping import groups
from tarry.wheel.hour_partition import HourPartition
from tarry.wheel.hour_wheel import HourWheel
from tarry.wheel.state import NONE, Numbers, Rows, UnknownMessage

_SHARED = ["size", "due_in_hour_ms", "topic", "crc32c", "tag_mask"]


def units(hours: HourWheel, hour: Numbers, global_index: Numbers) -> Rows:
    """See `Wheel.units`."""
    rows = np.empty(len(hour), UNIT)
    far = hours.far.find(hour, global_index)
    is_far = np.flatnonzero(far >= 0)
    if len(is_far):
        rows[is_far] = _as_units(hours.far.units_at(far[is_far]))
    left = np.flatnonzero(far < 0)
    for at, chosen in groups(hour[left]):
        of_hour = global_index[left[chosen]]
        rows[left[chosen]] = _known(hours, at, int(of_hour.max())).log.units_at(of_hour)
    return rows


def _as_units(far: Rows) -> Rows:
    units = np.zeros(len(far), UNIT)
    for name in _SHARED:
        units[name] = far[name]
    units["pre_global_index"] = NONE
    return units


def read(hours: HourWheel, hour: Numbers, global_index: Numbers, gap_bytes: int) -> list[bytes | None]:
    """See `Wheel.read`; records this close to one another are read in one call."""
    far = hours.far.find(hour, global_index) if hours.far.live else None
    if far is None or not bool((far >= 0).any()):
        return _read_written(hours, hour, global_index, gap_bytes)
    is_far, left = np.flatnonzero(far >= 0), np.flatnonzero(far < 0)
    rows = far[is_far]
    found, sound = hours.far.records(rows, hours.far.units_at(rows))
    records: list[bytes | None] = list(found)
    for damaged in np.flatnonzero(~sound).tolist():
        records[damaged] = None
    records += _read_written(hours, hour[left], global_index[left], gap_bytes)
    back = np.argsort(np.concatenate((is_far, left)))
    return list(map(records.__getitem__, back.tolist()))


def _read_written(
    hours: HourWheel, hour: Numbers, global_index: Numbers, gap_bytes: int
) -> list[bytes | None]:
    if len(hour) == 1:
        only = int(global_index[0])
        return [_known(hours, int(hour[0]), only).log.read_one(only)]
    records: list[bytes | None] = []
    order = []
    for at, chosen in groups(hour):
        of_hour = global_index[chosen]
        records += _known(hours, at, int(of_hour.max())).log.read(of_hour, gap_bytes)
        if not isinstance(chosen, slice):
            order.append(chosen)
    if not order:
        return records
    back = np.argsort(np.concatenate(order))
    return list(map(records.__getitem__, back.tolist()))


def parts(
    hours: HourWheel, hour: Numbers, global_index: Numbers, start: Places, bytes_max: int, gap_bytes: int
) -> list[bytes]:
    """See `Wheel.parts`."""
    found = np.empty(len(hour), object)
    far = hours.far.find(hour, global_index)
    is_far = np.flatnonzero(far >= 0)
    if len(is_far):
        rows = far[is_far]
        found[is_far] = hours.far.parts(rows, hours.far.units_at(rows), start[is_far], bytes_max)
    left = np.flatnonzero(far < 0)
    for at, chosen in groups(hour[left]):
        asked = left[chosen]
        of_hour = global_index[asked]
        log = _known(hours, at, int(of_hour.max())).log
        found[asked] = log.parts(log.units_at(of_hour), start[asked], bytes_max, gap_bytes)
    return found.tolist()


def _known(hours: HourWheel, hour: int, highest: int) -> HourPartition:
    return known(hours.written(hour), hour, highest)


def known(partition: HourPartition | None, hour: int, highest: int) -> HourPartition:
    """The partition, if it has the messages up to this global index. Raises UnknownMessage."""
    if partition is None or highest >= partition.units:
        raise UnknownMessage(f"hour {hour} has no message {highest}")
    return partition
