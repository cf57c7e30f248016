"""The placement of new messages: in the partitions of their hours, or in the far log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tarry.wheel.columns import Selection, distinct, groups, pick, starts_of
from tarry.wheel.delay_log import checksums, lengths
from tarry.wheel.hour_counts import HOURS
from tarry.wheel.hour_wheel import HourWheel
from tarry.wheel.state import Flags, Masks, Numbers

# What a partition costs is some 300 us where it is new, so that few may get one in one append.
_DIRECT_HOURS: Final = 8  # an append to so many hours writes them all where they stay
_DENSE_HOURS: Final = 24  # of one to more hours so many are, which get
_DENSE_UNITS: Final = 64  # as many at once
_FULL_UNITS: Final = 128  # so many in the far log are worth a partition of their own
_MOVED_HOURS: Final = 8  # so many full hours move with one append, at some 1 ms each
_LARGE_BYTES: Final = 16 << 10  # so large a record is written once, where it stays
_MOVED_BYTES: Final = 2 << 20  # and no more after so many; the others move with the next


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages to be laid down, columns of shape (n,)."""

    hour: Numbers
    records: Sequence[bytes]
    due_in_hour_ms: Numbers
    overdue: Flags
    topic: Numbers
    tag_mask: Masks
    sizes: Numbers
    crcs: Numbers

    def rows(self, chosen: Selection) -> Batch:
        """Return some of them."""
        return Batch(
            self.hour[chosen],
            pick(self.records, chosen),
            self.due_in_hour_ms[chosen],
            self.overdue[chosen],
            self.topic[chosen],
            self.tag_mask[chosen],
            self.sizes[chosen],
            self.crcs[chosen],
        )


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
    global_index = np.empty(len(records), np.uint32)
    batch = Batch(
        hour, records, due_in_hour_ms, overdue, topic, tag_mask, lengths(records), checksums(records)
    )
    thin = _thin(hour, batch.sizes, near_hour)
    if thin is None:
        _append_each(hours, batch, global_index)
        return global_index
    direct = np.flatnonzero(~thin)
    if len(direct):
        of_direct = np.empty(len(direct), np.uint32)
        _append_each(hours, batch.rows(direct), of_direct)
        global_index[direct] = of_direct
    far = np.flatnonzero(thin)
    if len(far):
        global_index[far] = _append_far(hours, batch.rows(far))
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


def _append_each(hours: HourWheel, batch: Batch, global_index: NDArray[np.uint32]) -> None:
    for at, rows in groups(batch.hour):
        partition = hours.ensure(at)
        first = partition.append(
            pick(batch.records, rows),
            sizes=batch.sizes[rows],
            crcs=batch.crcs[rows],
            due_in_hour_ms=batch.due_in_hour_ms[rows],
            topic=batch.topic[rows],
            tag_mask=batch.tag_mask[rows],
        )
        late = batch.overdue[rows]
        global_index[rows] = np.arange(first, first + len(late), dtype=np.uint32)
        hours.grown(partition, len(late) - int(late.sum()))


def _append_far(hours: HourWheel, batch: Batch) -> Numbers:
    """Append to the far log; none is overdue, for the hours begin after the cut's."""
    global_index = hours.far.append(
        batch.hour,
        batch.records,
        sizes=batch.sizes,
        crcs=batch.crcs,
        due_in_hour_ms=batch.due_in_hour_ms,
        topic=batch.topic,
        tag_mask=batch.tag_mask,
    )
    far, moved = hours.counts.far, 0
    full = distinct(batch.hour[far[batch.hour] >= _FULL_UNITS])
    fullest = full[np.argsort(far[full], kind="stable")[::-1]]  # so that no hour is left out for ever
    for at in fullest[: min(_MOVED_HOURS, 1 + len(batch.hour) // _FULL_UNITS)].tolist():
        moved += hours.settle(at)
        if moved >= _MOVED_BYTES:
            break
    hours.far.clean(len(batch.hour))
    return global_index
