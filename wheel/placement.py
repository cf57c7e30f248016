"""The placement of new messages: in the partitions of their hours, or in the far log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tarry.wheel.columns import distinct, groups, pick, starts_of
from tarry.wheel.delay_log import UNIT, checksums, lengths
from tarry.wheel.hour_counts import HOURS
from tarry.wheel.hour_wheel import HourWheel
from tarry.wheel.state import Flags, Masks, Numbers, Rows

# What a partition costs is some 300 us where it is new, so that few may get one in one append.
_DIRECT_HOURS: Final = 8  # an append to so many hours writes them all where they stay
_DENSE_HOURS: Final = 24  # of one to more hours so many are, which get
_DENSE_UNITS: Final = 64  # as many at once
_FULL_UNITS: Final = 128  # so many in the far log are worth a partition of their own
_MOVED_HOURS: Final = 8  # so many full hours move with one append, at some 1 ms each
_LARGE_BYTES: Final = 16 << 10  # so large a record is written once, where it stays
_MOVED_BYTES: Final = 2 << 20  # and no more after so many; the others move with the next


def append(
    hours: HourWheel,
    near_hour: int,
    hour: Numbers,
    records: Sequence[bytes],
    *,
    due_in_hour_ms: Numbers,
    overdue: Flags,
    topic: Numbers,
    tag_mask: Masks,
) -> Numbers:
    """Append n messages, columns of shape (n,); return their global indices. Raises OSError.

    Hours up to `near_hour` get theirs in their partitions. What others get a few of at a time goes to the far
    log, at the same cost for any number of hours.
    """
    units = np.empty(len(records), UNIT)
    units["size"] = lengths(records)
    units["crc32c"] = checksums(records)
    units["due_in_hour_ms"] = due_in_hour_ms
    units["topic"] = topic
    units["tag_mask"] = tag_mask
    thin = _thin(hour, units["size"], near_hour)
    if thin is None:
        return _append_each(hours, hour, records, units, overdue)
    global_index = np.empty(len(records), np.uint32)
    direct, far = np.flatnonzero(~thin), np.flatnonzero(thin)
    if len(direct):
        some = hour[direct], pick(records, direct), units.take(direct), overdue[direct]
        global_index[direct] = _append_each(hours, *some)
    if len(far):
        global_index[far] = _append_far(hours, hour[far], pick(records, far), units.take(far))
    return global_index


def _thin(hour: Numbers, sizes: Numbers, near_hour: int) -> Flags | None:
    """Flag the messages that go to the far log, of an hour all or none; None: none does."""
    if len(hour) <= _DIRECT_HOURS:
        return None
    order = np.argsort(hour, kind="stable")
    starts = starts_of(hour[order])
    if len(starts) <= _DIRECT_HOURS:
        return None
    distinct = hour[order[starts]]
    added = np.diff(np.append(starts, len(hour)))
    near = (distinct <= near_hour) | (distinct >= HOURS)
    large = np.maximum.reduceat(sizes[order], starts) >= _LARGE_BYTES
    dense = added >= _DENSE_UNITS
    if int(dense.sum()) > _DENSE_HOURS:
        dense[np.argsort(added, kind="stable")[:-_DENSE_HOURS]] = False
    thin = np.empty(len(hour), np.bool_)
    thin[order] = np.repeat(~near & ~large & ~dense, added)
    return thin


def _append_each(
    hours: HourWheel, hour: Numbers, records: Sequence[bytes], units: Rows, overdue: Flags
) -> Numbers:
    global_index = np.empty(len(hour), np.uint32)
    for at, rows in groups(hour):
        partition = hours.ensure(at)
        of_hour = units[rows] if isinstance(rows, slice) else units.take(rows)
        first = partition.append(pick(records, rows), of_hour)
        late = overdue[rows]
        global_index[rows] = np.arange(first, first + len(late), dtype=np.uint32)
        hours.grown(partition, len(late) - int(late.sum()))
    return global_index


def _append_far(hours: HourWheel, hour: Numbers, records: Sequence[bytes], units: Rows) -> Numbers:
    """Append to the far log; none is overdue, for the hours begin after the cut's."""
    global_index = hours.far.append(hour, records, units)
    far, moved = hours.counts.far, 0
    full = distinct(hour[far[hour] >= _FULL_UNITS])
    fullest = full[np.argsort(far[full], kind="stable")[::-1]]  # so that no hour is left out for ever
    for at in fullest[: min(_MOVED_HOURS, 1 + len(hour) // _FULL_UNITS)].tolist():
        moved += hours.settle(at)
        if moved >= _MOVED_BYTES:
            break
    hours.far.clean(len(hour))
    return global_index
