"""Turns of rows on systems (A B C, A B C, …), so that what else the machine does falls on all alike."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from tarry.bench.side_by_side.messages import Verdict
from tarry.bench.side_by_side.pace import Pace, Plan
from tarry.bench.side_by_side.rows import Row
from tarry.bench.side_by_side.system import System
from tarry.bench.side_by_side.workloads import Turn


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure over its turns."""

    min: float
    median: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(min(values), median(values), max(values))


@dataclass(slots=True)
class Cell:
    """Turns of one system in one row; `failed` is the reason of the last failed turn.

    `seconds`: that all its turns took, with what goes before and after them; `share`: the shortest turn's.
    """

    turns: list[Turn] = field(default_factory=list)
    failed: str = ""
    failures: int = 0
    seconds: float = 0.0
    share: float = 1.0

    def figures(self) -> dict[str, Spread]:
        """Return every figure that all turns have."""
        if not self.turns:
            return {}
        names = [name for name in self.turns[0].figures if all(name in turn.figures for turn in self.turns)]
        return {name: Spread.of([turn.figures[name] for turn in self.turns]) for name in names}

    def verdict(self) -> Verdict:
        return sum((turn.verdict for turn in self.turns), Verdict())


@dataclass(slots=True)
class Results:
    """Cells by row and system."""

    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)

    def cell(self, row: str, system: str) -> Cell:
        return self.cells.get((row, system), Cell())

    def ratio(self, row: str, ours: str, theirs: str, figure: str) -> float | None:
        """Return the median over the turns of ours divided by theirs; None without a common turn."""
        pairs = zip(self.cell(row, ours).turns, self.cell(row, theirs).turns, strict=False)
        ratios = [a.figures[figure] / b.figures[figure] for a, b in pairs if b.figures.get(figure)]
        return median(ratios) if ratios else None


Tell = Callable[[Row, System, int, Cell], None]
FAILURES_MAX: Final = 2


async def run(plan: Plan, pace: Pace, results: Results, tell: Tell) -> None:
    """Fill `results` row by row; a turn that fails is tried again, once in a row and system.

    How long turns are, and how many where time is short, is the pace's to say.
    """
    for row, systems in plan:
        for number in range(pace.turns(row)):
            for system in systems:
                cell = results.cells.setdefault((row.name, system.name), Cell())
                while len(cell.turns) == number and cell.failures < FAILURES_MAX:
                    await _turn(row, system, pace, cell)
                    if cell.failures == FAILURES_MAX:
                        pace.give_up(row, system)
                    tell(row, system, number, cell)


async def _turn(row: Row, system: System, pace: Pace, cell: Cell) -> None:
    """Run one turn; whatever a peer or its client raises is that peer's result."""
    share, begin = pace.share(), time.monotonic()
    await asyncio.to_thread(os.sync)  # what others left to write is not to be measured here
    working = asyncio.ensure_future(row.work(system, share))
    await asyncio.wait([working], timeout=row.seconds_max)
    if not working.done():
        working.cancel()
        await asyncio.wait([working])
        cell.failures = FAILURES_MAX  # another try would take as long
        cell.failed = f"not done after {row.seconds_max:.0f} s"
    elif (error := working.exception()) is not None:
        cell.failures += 1
        cell.failed = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    else:
        cell.turns.append(working.result())
        cell.share = min(cell.share, share)
        pace.took(row, system, time.monotonic() - begin, share)
    cell.seconds += time.monotonic() - begin
