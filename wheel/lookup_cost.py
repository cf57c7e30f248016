"""What it costs to name messages by their ids, and whether there are such: told from memory alone."""

from __future__ import annotations

from typing import Final

import numpy as np

from tarry.wheel.grouping import starts_of
from tarry.wheel.hour_wheel import HourWheel
from tarry.wheel.state import Flags, Numbers

# CPU time, measured on the machine that the turns' bounds are set on.
CHAINED_NS: Final = 150
"""For each unit of a chain of the far log that may have to be passed."""
PARTITION_NS: Final = 150_000
"""Of a partition that has to be opened, and another closed for it."""
ABSENT_NS: Final = 2_000
"""Of an hour that has none."""


def costs_ns(hours: HourWheel, hour: Numbers, global_index: Numbers) -> Numbers:
    """What each of messages costs, ids of shape (n,) by hour: the first of a partition all that this does."""
    costs, counts = np.zeros(len(hour), np.uint32), hours.counts
    at = np.where(hour < len(counts), hour, 0)
    far = (at == hour) & (global_index >= counts.written[at]) & (global_index < exist(hours, hour))
    costs[far] = np.minimum(counts.far[at[far]], 1 << 20) * np.uint32(CHAINED_NS)
    near = np.flatnonzero(~far)
    first = near[starts_of(hour[near])]
    there = [hours.partition(one) is not None for one in hour[first].tolist()]
    costs[first] = np.where(there, np.uint32(PARTITION_NS), np.uint32(ABSENT_NS))
    return costs


def exist(hours: HourWheel, hour: Numbers) -> Numbers:
    """How many messages the hour of each of some ids, shape (n,) by hour, has got; 0: it was dropped."""
    starts = starts_of(hour)
    units = np.array(list(map(hours.units, hour[starts].tolist())), np.uint32)
    return np.repeat(units, np.diff(np.append(starts, len(hour))))


def known_of(hours: HourWheel, hour: Numbers, global_index: Numbers) -> Flags:
    """Which of messages, ids of shape (n,) by hour, there are."""
    there: Flags = global_index < exist(hours, hour)
    return there
