"""Runs rows on systems in turn (A B C, A B C, …), so that what else the machine does falls on all alike."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from tarry.bench.side_by_side.messages import Verdict
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
    """What one system did in one row; `failed` says why it has no (more) turns."""

    turns: list[Turn] = field(default_factory=list)
    failed: str = ""

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


Plan = Sequence[tuple[Row, Sequence[System]]]
Tell = Callable[[Row, System, int, Cell], None]


async def run(plan: Plan, turns: int, quick: bool, deadline: float, results: Results, tell: Tell) -> None:
    """Fill `results` row by row; a system that fails in a row is left out of the rest of it.

    No turn begins after `deadline`, of the monotonic clock.
    """
    for row, systems in plan:
        for number in range(min(turns, row.turns_max)):
            for system in systems:
                cell = results.cells.setdefault((row.name, system.name), Cell())
                if cell.failed:
                    continue
                if time.monotonic() > deadline:
                    cell.failed = "the run's time was over"
                else:
                    await asyncio.to_thread(os.sync)  # what others left to write is not to be measured here
                    await _turn(row, system, quick, cell)
                tell(row, system, number, cell)


async def _turn(row: Row, system: System, quick: bool, cell: Cell) -> None:
    """Run one turn; whatever a peer or its client raises is that peer's result."""
    working = asyncio.ensure_future(row.work(system, quick))
    await asyncio.wait([working], timeout=row.seconds_max)
    if not working.done():
        working.cancel()
        await asyncio.wait([working])
        cell.failed = f"not done after {row.seconds_max:.0f} s"
    elif (error := working.exception()) is not None:
        cell.failed = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    else:
        cell.turns.append(working.result())
