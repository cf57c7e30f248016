"""Id gaps: what the ids of an hour leave out where another incarnation of the cluster began.

    places of an hour   0 ………… 2,340 │ 2,341 ……                 all that the hour has, numbered without a hole
    ids                 0 ………… 2,340 │         67,111,205 ……    between them a gap: ids that nobody is given

Before a cluster goes on alone, or from a backup, ids may have been given to messages that are lost. Programs
may have stored these ids, and none of them may ever name a later message. So each incarnation goes on, in
each hour, behind a gap. Of two that begin with one state, as of one backup, few give the same ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tarry.wheel.state import NONE, IdGapsState, Numbers

# They belong to the level that knows of gaps: with others, replicas would differ.
GAP_MIN: Final = 1 << 26
"""Places of one hour that may be lost without an id being given twice."""
GAP_MAX: Final = 1 << 27
TOTAL_MAX: Final = 1 << 31
"""Of all gaps: as many places still have ids. There is room for 16 at least; one without room is none."""
_NOBODY: Final = np.uint32(NONE)


def gap_of(incarnation: int) -> int:
    """Return the size of the gap with which an incarnation, a random number, begins."""
    return GAP_MIN + incarnation % (GAP_MAX - GAP_MIN)


class _Gap(NamedTuple):
    size: int
    hours: Numbers
    units: Numbers
    floor_hour: int

    def first_places(self, hour: Numbers) -> NDArray[np.int64]:
        """Return the first place behind the gap, of each of the hours."""
        first = np.where(hour < self.floor_hour, np.int64(NONE), np.int64(0))
        if len(self.hours):
            at = np.minimum(np.searchsorted(self.hours, hour), len(self.hours) - 1)
            known = self.hours[at] == hour
            first[known] = self.units[at[known]]
        return first


class IdGaps:
    """The gaps of all hours, in the order of their beginnings. Columns have shape (n,)."""

    __slots__ = ("_gaps", "_state", "digests")

    def __init__(self, state: IdGapsState = ()) -> None:
        self._gaps: list[_Gap] = []
        self._state: IdGapsState = ()
        self.digests: tuple[bytes, ...] = ()
        """Of each gap, in order."""
        for size, hours, units, floor_hour in state:
            self._add(size, hours, units, floor_hour)

    def __bool__(self) -> bool:
        return bool(self._gaps)

    def begin(self, size: int, hours: Sequence[int], units: Sequence[int], floor_hour: int) -> None:
        """Have the ids of all later messages lie behind one more gap.

        Take the hours that have messages, ascending, and how many each has; hours before the floor that are
        not among them are dropped, and get none any more. The gap is as large as the room that is left.
        """
        room = TOTAL_MAX - sum(gap.size for gap in self._gaps)
        if min(size, room) > 0:
            told = np.array(hours, "<u4").tobytes(), np.array(units, "<u4").tobytes()
            self._add(min(size, room), *told, floor_hour)

    def _add(self, size: int, hours: bytes, units: bytes, floor_hour: int) -> None:
        told = size, hours, units, floor_hour
        self._gaps.append(_Gap(size, np.frombuffer(hours, "<u4"), np.frombuffer(units, "<u4"), floor_hour))
        self._state += (told,)
        self.digests += (hashlib.blake2b(repr(told).encode(), digest_size=16).digest(),)

    def indices(self, hour: Numbers, global_index: Numbers) -> Numbers:
        """Return the indices of the ids that follow from places."""
        index = global_index
        for gap in self._gaps:
            index = index + np.uint32(gap.size) * (global_index >= gap.first_places(hour))
        return index

    def places(self, hour: Numbers, index: Numbers) -> tuple[Numbers, Numbers]:
        """Return the places from which ids follow; (NONE, NONE): it is nobody's id."""
        if not self._gaps:
            return hour, index
        index, before = index.astype(np.int64), 0
        passed, left_out = np.zeros(len(hour), np.int64), np.zeros(len(hour), np.bool_)
        for gap in self._gaps:
            first = gap.first_places(hour)
            behind = index >= first + before + gap.size
            left_out |= (index >= first + before) & ~behind
            before += gap.size
            passed[behind] = before
        place = (index - passed).astype(np.uint32)
        return np.where(left_out, _NOBODY, hour), np.where(left_out, _NOBODY, place)

    def capture(self) -> IdGapsState:
        """Return the state for a checkpoint, without copying it."""
        return self._state
