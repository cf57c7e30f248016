"""Overtaking: messages that are released before the cut gets to them, which then passes them over.

cut                                             now
 │▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒░▒▒▒▒▒▒▒▒░▒▒▒▒▒▒▒▒░▒▒▒▒▒▒│      ▒ a topic with a million, ░ others
 └── a release ──┘      ░        ░        ░              go with it
"""

from __future__ import annotations

import numpy as np

from tarry.wheel.cancelling import are_released
from tarry.wheel.grouping import distinct, groups
from tarry.wheel.hour_wheel import HourWheel
from tarry.wheel.near_queue import taken
from tarry.wheel.state import Cut, Numbers, Rows, Taken


def overtake(hours: HourWheel, cut: Cut, hour: Numbers, global_index: Numbers) -> Taken:
    """See `Wheel.overtake`."""
    parts: list[Rows] = []
    for at, rows in groups(hour):
        partition = hours.find(at)
        if partition is None:
            continue
        chosen = global_index[rows]
        chosen = chosen[chosen < partition.units]
        pending = ~partition.is_gone(chosen) & ~are_released(partition, cut, chosen)
        fresh = distinct(chosen[pending])
        if len(fresh) == 0:
            continue
        partition.overtake(fresh)
        entries = partition.entries(partition.log.units_at(fresh), fresh)
        hours.count(at, -len(fresh))
        hours.topics.add(entries["topic"], -1)
        parts.append(entries.take(np.argsort(entries["due_ms"], kind="stable")))
    return taken(parts)
