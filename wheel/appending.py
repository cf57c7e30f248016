"""Laying new messages down in the partitions of their hours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tarry.wheel.delay_log import checksums, lengths
from tarry.wheel.grouping import groups, pick, the_only
from tarry.wheel.hour_wheel import HourWheel
from tarry.wheel.state import Flags, Masks, Numbers


def append_by_hour(
    hours: HourWheel,
    hour: Numbers,
    records: Sequence[bytes],
    *,
    due_in_hour_ms: Numbers,
    overdue: Flags,
    topic: Numbers,
    tag_mask: Masks,
) -> Numbers:
    """Append n messages, columns of shape (n,); their global indices. Costs each hour. Raises OSError."""
    global_index = np.empty(len(records), np.uint32)
    sizes, crcs = lengths(records), checksums(records)
    by_hour = list(groups(hour))
    scattered = len(by_hour) > hours.open_max  # to open them all would be to close them all again
    for at, rows in by_hour:
        row = the_only(rows) if scattered else None
        if row is not None and (one := hours.resting(at)) is not None:
            global_index[row] = one.append_one(
                records[row],
                crc=int(crcs[row]),
                due_in_hour_ms=int(due_in_hour_ms[row]),
                topic=int(topic[row]),
                tag_mask=int(tag_mask[row]),
            )
            hours.pending.add(at, 0 if overdue[row] else 1)
            continue
        first = hours.ensure(at).append(
            pick(records, rows),
            sizes=sizes[rows],
            crcs=crcs[rows],
            due_in_hour_ms=due_in_hour_ms[rows],
            topic=topic[rows],
            tag_mask=tag_mask[rows],
        )
        late = overdue[rows]
        global_index[rows] = np.arange(first, first + len(late), dtype=np.uint32)
        hours.pending.add(at, len(late) - int(late.sum()))
    return global_index
