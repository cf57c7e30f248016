"""Gaps in the ids of messages: where another incarnation of the cluster began.

    places of an hour   0 ………… 2,340 │ 2,341 ……                  what it has is numbered without a hole
    ids                 0 ………… 2,340 │        16,779,557 ……      behind each begin, 2^24 are given to nobody

Before a cluster went on alone, or from a backup, ids may have been given of messages that are lost. Programs
have stored them, and they must never name, nor cancel, a message that came later. So each incarnation goes
on, in each hour, `GAP` global indices behind those of the messages that are there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from tarry.wheel.state import NONE, IdGapsState, Numbers

GAP: Final = 1 << 24
"""Messages of one hour that may be lost without an id being given twice."""
GAPS_MAX: Final = 128
"""Begins that are noted; two billion messages still have room in an hour. Later ones leave no gap."""


class _Gap(NamedTuple):
    hours: Numbers
    units: Numbers
    floor_hour: int

    def digest(self) -> bytes:
        told = self.hours.tobytes(), self.units.tobytes(), self.floor_hour
        return hashlib.blake2b(repr(told).encode(), digest_size=16).digest()

    def begins(self, hour: Numbers) -> Numbers:
        """Return the first place behind the gap, of each of the hours."""
        first = np.where(hour < self.floor_hour, np.uint32(NONE), np.uint32(0))
        if len(self.hours):
            at = np.minimum(np.searchsorted(self.hours, hour), len(self.hours) - 1)
            known = self.hours[at] == hour
            first[known] = self.units[at[known]]
        return first


class IdGaps:
    """The gaps of all hours. Columns have shape (n,)."""

    __slots__ = ("_gaps", "digests")

    def __init__(self, state: IdGapsState = ()) -> None:
        self._gaps = [
            _Gap(np.frombuffer(hours, "<u4"), np.frombuffer(units, "<u4"), floor_hour)
            for hours, units, floor_hour in state
        ]
        self.digests = tuple(gap.digest() for gap in self._gaps)
        """Of each gap, in order."""

    def __bool__(self) -> bool:
        return bool(self._gaps)

    def begin(self, hours: Sequence[int], units: Sequence[int], floor_hour: int) -> None:
        """Have the ids of all later messages lie behind one more gap.

        Take the hours that have messages, ascending, and how many each has; hours before the floor that are
        not among them are dropped, and get none any more.
        """
        if len(self._gaps) < GAPS_MAX:
            self._gaps.append(_Gap(np.array(hours, "<u4"), np.array(units, "<u4"), floor_hour))
            self.digests += (self._gaps[-1].digest(),)

    def ids(self, hour: Numbers, global_index: Numbers) -> Numbers:
        """Return the global indices of the ids of messages that have rested at places from the first."""
        if not self._gaps:
            return global_index
        return global_index + np.uint32(GAP) * self._before(hour, global_index)

    def places(self, hour: Numbers, global_index: Numbers) -> tuple[Numbers, Numbers]:
        """Return the places that ids have had from the first; (NONE, NONE): it is nobody's id."""
        if not self._gaps:
            return hour, global_index
        place_hour, place_index = np.full(len(hour), NONE, np.uint32), np.full(len(hour), NONE, np.uint32)
        for gaps in range(len(self._gaps) + 1):
            # an id has one place at most: those of later places lie behind as many gaps, or more
            index = global_index - np.uint32(min(gaps * GAP, NONE))
            named = (global_index >= gaps * GAP) & (self._before(hour, index) == gaps)
            place_hour[named], place_index[named] = hour[named], index[named]
        return place_hour, place_index

    def _before(self, hour: Numbers, global_index: Numbers) -> Numbers:
        """Return how many gaps lie before each place."""
        count = np.zeros(len(hour), np.uint32)
        for gap in self._gaps:
            count += global_index >= gap.begins(hour)
        return count

    def capture(self) -> IdGapsState:
        """Return the state for a checkpoint."""
        return tuple((gap.hours.tobytes(), gap.units.tobytes(), gap.floor_hour) for gap in self._gaps)
