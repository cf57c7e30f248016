"""The length of a run, and the share of each turn with which it ends in time.

A run that is slower than foreseen shortens all that is left, down to SHARE_MIN of a turn, and then takes
fewer turns of a row. Nothing is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from tarry.bench.side_by_side.rows import Row
    from tarry.bench.side_by_side.system import System

Plan: TypeAlias = "Sequence[tuple[Row, Sequence[System]]]"
SHARE_MIN: Final = 0.25
FIXED: Final = 0.5
"""So much of a turn's time does not shorten with it: syncing, leads, restarts, counting."""
TRUST: Final = 0.1
"""Weight of the estimate against the measured turns: as much as this part of a run."""


def _cost(share: float) -> float:
    return FIXED + (1 - FIXED) * share


def planned_s(plan: Plan, turns: int, share: float = 1.0) -> float:
    """Return how long so many turns of all should take on a quiet machine."""
    whole_s = sum(row.seconds * row.turns(turns) * len(systems) for row, systems in plan)
    return whole_s * _cost(share)


class Pace:
    """`share`: of a full turn, while there is time; `end_s`: on `clock`, when the last turn should end."""

    def __init__(
        self, plan: Plan, turns: int, share: float, end_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._turns, self._share, self._end_s, self._clock = turns, share, end_s, clock
        self._share_min = min(share, SHARE_MIN)
        self._left = {
            (row.name, system.name): row.turns(turns) for row, systems in plan for system in systems
        }
        self._full_s = {(row.name, system.name): row.seconds for row, systems in plan for system in systems}
        self._measured: set[tuple[str, str]] = set()
        self._took_s = self._foreseen_s = TRUST * planned_s(plan, turns)

    def _full_left_s(self) -> float:
        slowness = self._took_s / self._foreseen_s if self._foreseen_s else 1.0
        return sum(
            count * self._full_s[cell] * (1.0 if cell in self._measured else slowness)
            for cell, count in self._left.items()
        )

    def left_s(self) -> float:
        """Return how long what is left takes at the next turn's share, by what was measured so far."""
        return self._full_left_s() * _cost(self.share())

    def time_left_s(self) -> float:
        return self._end_s - self._clock()

    def share(self) -> float:
        """Return how much of a turn the next one may be."""
        full_s = self._full_left_s()
        affordable = (self.time_left_s() / full_s - FIXED) / (1 - FIXED) if full_s else 1.0
        return min(self._share, max(self._share_min, affordable))

    def turns(self, row: Row) -> int:
        """Return how many turns the row gets that begins now: fewer where the shortest are too long."""
        wanted = row.turns(self._turns)
        least_s = self._full_left_s() * _cost(self._share_min)
        if least_s <= self.time_left_s():
            return wanted
        turns = max(1, int(wanted * self.time_left_s() / least_s))
        for cell in self._left:
            if cell[0] == row.name:
                self._left[cell] = turns
        return turns

    def took(self, row: Row, system: System, seconds: float, share: float) -> None:
        """Note a turn that is over."""
        cell = (row.name, system.name)
        self._took_s += seconds
        self._foreseen_s += row.seconds * _cost(share)
        self._full_s[cell] = seconds / _cost(share)
        self._measured.add(cell)
        self._left[cell] = max(0, self._left[cell] - 1)

    def give_up(self, row: Row, system: System) -> None:
        """Note that there will be no more turns of this."""
        self._left[row.name, system.name] = 0
