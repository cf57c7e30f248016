"""Pending messages of a captured state, with their records: read afterwards from the files, in a thread.

    hours of the state         index, proven ──┐
                                               ├──► units that are pending ──► records, some MiB at a time
    segments of the far log    index, by units ┘

The state is what a checkpoint holds, so the files are append-only up to its lengths; whoever reads sees to it
that none of them is deleted or thinned meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from tarry.wheel import far_log
from tarry.wheel.bitmaps import contains, loaded
from tarry.wheel.columns import portions
from tarry.wheel.delay_log import BLOCK_UNITS, DelayLog, is_there
from tarry.wheel.far_segment import Segment, are_sound, segment_name
from tarry.wheel.hour_partition import folder_name
from tarry.wheel.id_gaps import IdGaps
from tarry.wheel.index_checksum import prove_index
from tarry.wheel.message_sum import MessageSum
from tarry.wheel.moved_messages import MovedMessages
from tarry.wheel.page_budget import PageBudget
from tarry.wheel.state import (
    HOUR_MS,
    Flags,
    HourState,
    Numbers,
    Rows,
    SegmentState,
    Times,
    WheelDamaged,
    WheelState,
)

GAP_BYTES: Final = 16_384
"""Of a log, between records that are read in one call."""
_MAPPED_BYTES: Final = 4 << 20

Wanted: TypeAlias = Callable[[Numbers, Times], Flags]
"""Flags the pending messages that are asked for, by their columns topic and due_ms, shape (n,)."""


class PendingPart(NamedTuple):
    """Some pending messages, columns of shape (n,)."""

    hour: Numbers
    """With global_index: the message's id."""
    global_index: Numbers
    place_hour: Numbers
    """With place_index: where it rests, from which its id follows unless it was moved."""
    place_index: Numbers
    due_ms: Times
    topic: Numbers
    records: list[bytes]
    sound: Flags
    """The records that are what was written."""


class PendingRecords:
    """The pending messages of a state. For one thread at a time."""

    def __init__(self, folder: Path, state: WheelState) -> None:
        self._folder, self._state = folder, state
        self._moved = MovedMessages(_none_is_dropped, MessageSum(), state.moved, IdGaps(state.id_gaps))
        self._budget = PageBudget(_MAPPED_BYTES)
        by_hour = sorted((one.hour, one.units) for one in state.hours)
        self._hours = np.array([hour for hour, _ in by_hour], np.uint32)
        self._written = np.array([units for _, units in by_hour], np.uint32)

    def parts(self, wanted: Wanted, bytes_max: int) -> Iterator[PendingPart]:
        """Yield the messages that are wanted, by ascending hours, then those of the far log.

        The records of a part have `bytes_max` at most together; a larger one comes alone.
        Raises OSError; WheelDamaged where an index is not what was written.
        """
        for state in sorted(self._state.hours, key=lambda one: one.hour):
            if state.pending:
                yield from self._of_hour(state, wanted, bytes_max)
        for segment in self._state.far.segments:
            yield from self._of_segment(segment, wanted, bytes_max)

    def _of_hour(self, state: HourState, wanted: Wanted, bytes_max: int) -> Iterator[PendingPart]:
        folder = self._folder / folder_name(state.hour)
        log = DelayLog(folder, self._budget, state.log_bytes, state.units, state.index_crc)
        gone = loaded(state.cancelled) | loaded(state.overtaken)
        try:
            log.open(create=False)
            prove_index(log)
            for start in range(0, state.units, BLOCK_UNITS):
                units = log.block(start, min(state.units, start + BLOCK_UNITS))
                index = np.arange(start, start + len(units), dtype=np.uint32)
                due_ms = units["due_in_hour_ms"] + np.int64(state.hour * HOUR_MS)
                pending = is_there(units) & ~contains(gone, index)
                pending &= ~self._state.cut.has_passed(due_ms, index)
                hour = np.full(len(units), state.hour, np.uint32)
                yield from self._read(log, units, hour, index, due_ms, pending, wanted, bytes_max)
        finally:
            log.close()

    def _of_segment(self, state: SegmentState, wanted: Wanted, bytes_max: int) -> Iterator[PendingPart]:
        far = self._state.far
        segment = Segment(self._folder / segment_name(state.number), self._budget, state)
        dropped = loaded(far.dropped_hours)
        base = state.number * far_log.SEGMENT_UNITS
        try:
            segment.open(create=False)
            for start in range(max(0, far.first - base), state.units, BLOCK_UNITS):
                units = segment.block(start, min(state.units, start + BLOCK_UNITS))
                if not bool(are_sound(units).all()):
                    raise WheelDamaged(segment.index_path, "a unit is not what was written")
                place = np.arange(start, start + len(units), dtype=np.uint32)
                hour, index = units["hour"].copy(), units["global_index"].copy()
                due_ms = units["due_in_hour_ms"] + hour * np.int64(HOUR_MS)
                pending = ~contains(segment.gone, place) & ~contains(dropped, hour)
                pending &= index >= self._written_of(hour)
                pending &= ~self._state.cut.has_passed(due_ms, index)
                yield from self._read(segment, units, hour, index, due_ms, pending, wanted, bytes_max)
        finally:
            segment.close()

    def _written_of(self, hour: Numbers) -> Numbers:
        """Return how many messages each hour has in its partition: these are not read in the far log."""
        if not len(self._hours):
            return np.zeros(len(hour), np.uint32)
        at = np.minimum(np.searchsorted(self._hours, hour), len(self._hours) - 1)
        return np.where(self._hours[at] == hour, self._written[at], np.uint32(0))

    def _read(
        self,
        log: DelayLog,
        units: Rows,
        hour: Numbers,
        index: Numbers,
        due_ms: Times,
        pending: Flags,
        wanted: Wanted,
        bytes_max: int,
    ) -> Iterator[PendingPart]:
        rows = np.flatnonzero(pending)
        rows = rows[wanted(units["topic"][rows], due_ms[rows])]
        for part in portions(units["size"][rows], bytes_max):
            some = rows[part]
            chosen, place = units[some], (hour[some], index[some])
            records, sound = log.records(chosen, GAP_BYTES)
            first = self._moved.ids(*place)
            topic = np.ascontiguousarray(chosen["topic"])
            yield PendingPart(*first, *place, due_ms[some], topic, records, sound)


def _none_is_dropped(hours: Numbers) -> Flags:
    return np.zeros(len(hours), np.bool_)
