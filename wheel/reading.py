"""Reading messages by their ids, an hour's together."""

from __future__ import annotations

import numpy as np

from tarry.wheel.delay_log import UNIT
from tarry.wheel.grouping import groups
from tarry.wheel.hour_partition import HourPartition
from tarry.wheel.hour_wheel import HourWheel
from tarry.wheel.state import Numbers, Rows, UnknownMessage


def units(hours: HourWheel, hour: Numbers, global_index: Numbers) -> Rows:
    """See `Wheel.units`."""
    rows = np.empty(len(hour), UNIT)
    for at, chosen in groups(hour):
        of_hour = global_index[chosen]
        rows[chosen] = known(hours, at, int(of_hour.max())).log.units_at(of_hour)
    return rows


def read(hours: HourWheel, hour: Numbers, global_index: Numbers, gap_bytes: int) -> list[bytes | None]:
    """See `Wheel.read`; records this close to one another are read in one call."""
    if len(hour) == 1:
        only = int(global_index[0])
        return [known(hours, int(hour[0]), only).log.read_one(only)]
    records: list[bytes | None] = []
    order = []
    for at, chosen in groups(hour):
        of_hour = global_index[chosen]
        records += known(hours, at, int(of_hour.max())).log.read(of_hour, gap_bytes)
        if not isinstance(chosen, slice):
            order.append(chosen)
    if not order:
        return records
    back = np.argsort(np.concatenate(order))
    return list(map(records.__getitem__, back.tolist()))


def known(hours: HourWheel, hour: int, highest: int) -> HourPartition:
    """The partition that has the messages up to this global index. Raises UnknownMessage."""
    partition = hours.find(hour)
    if partition is None or highest >= partition.units:
        raise UnknownMessage(f"hour {hour} has no message {highest}")
    return partition
