"""Benchmark of tarry and its alternatives side by side: the same work, the same cores, turn by turn.

    python -m tarry.bench.side_by_side                                # everything, 15 minutes at most
    python -m tarry.bench.side_by_side --quick                        # two minutes
    python -m tarry.bench.side_by_side --row schedule_1000x100 --only tarry,etcd3

Prints a table, writes a report (HTML) and the figures (JSON) to `--out`; the figures again are the last line.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tarry.bench.machine import Stolen, machine
from tarry.bench.side_by_side.figures import lines, outcome
from tarry.bench.side_by_side.messages import Verdict
from tarry.bench.side_by_side.pace import Pace, Plan, planned_s
from tarry.bench.side_by_side.peers import NOT_TO_BE_HAD, chosen
from tarry.bench.side_by_side.report import page
from tarry.bench.side_by_side.rows import ROWS, Row, row_of
from tarry.bench.side_by_side.system import System
from tarry.bench.side_by_side.turns import Cell, Results, Tell, run

TURNS = 3
MINUTES, QUICK_MINUTES = 14.5, 2.0
QUICK_SHARE = 0.3
STOPPING_S = 10
console = Console(stderr=True, width=None if os.isatty(2) else 200)


async def started(systems: list[System], folder: Path, skipped: dict[str, str]) -> list[System]:
    """Start what can be started; say of the rest why not."""
    running = []
    for system in systems:
        reason = system.missing()
        if not reason:
            starting = asyncio.ensure_future(_start(system, folder / system.name))
            await asyncio.wait([starting], timeout=150)
            if not starting.done():
                starting.cancel()
                reason = "did not start in 150 s"
            elif (error := starting.exception()) is not None:
                reason = f"{type(error).__name__}: {error}"
        if reason:
            skipped[system.name] = reason.splitlines()[0]
            console.print(f"[yellow]{system.name} is left out:[/] {reason}", highlight=False)
        else:
            running.append(system)
            console.print(f"{system.name} {system.version()}: {system.durability.setting}", highlight=False)
    return running


async def _start(system: System, folder: Path) -> None:
    os.mkdir(folder, 0o755)  # noqa: PTH102
    await system.start(folder)


def teller(pace: Pace, begin_s: float) -> Tell:
    """Return what shows progress: the last turn's main figures, the minutes gone and those still to come."""

    def tell(row: Row, system: System, number: int, cell: Cell) -> None:
        gone = f"[{(time.monotonic() - begin_s) / 60:4.1f} min, {pace.left_s() / 60:4.1f} left]"
        head = f"{gone} {row.name} {system.name} turn {number + 1}"
        if len(cell.turns) <= number:
            console.print(f"{head}: [red]{cell.failed}[/]", highlight=False, markup=True)
            return
        turn = cell.turns[-1]
        said = "  ".join(f"{name} {value:,.2f}" for name, value in turn.figures.items())
        said += f"  (turns at {cell.share:.0%})" if cell.share < 1 else ""
        judged = "" if turn.verdict == Verdict() else f"  [red]{turn.verdict}[/]"
        console.print(f"{head}: {said}{judged}", highlight=False)

    return tell


def planned(rows: list[Row], systems: list[System], *, everywhere: bool) -> Plan:
    """Return each row with the systems to measure: all that it fits, or those of a quick run."""
    return [
        (row, [each for each in systems if row.fits(each) and (everywhere or each.name in row.quick)])
        for row in rows
    ]


def show_plan(plan: Plan, turns: int, share: float, minutes: float) -> None:
    """Print the rows to come, and how long they should take."""
    table = Table("row", "systems", "turns", "minutes")
    for row, systems in plan:
        needed_min = planned_s([(row, systems)], turns, share) / 60
        names = ", ".join(each.name for each in systems) or "none of these does this"
        table.add_row(row.name, names, str(row.turns(turns)), f"{needed_min:.1f}")
    console.print(table)
    total_min = planned_s(plan, turns, share) / 60
    console.print(
        f"some {total_min:.1f} minutes on a quiet machine; beyond {minutes:g} in all, turns are shortened",
        highlight=False,
    )


async def measure(
    rows: list[Row],
    systems: list[System],
    *,
    turns: int,
    minutes: float,
    share: float,
    everywhere: bool,
    skipped: dict[str, str],
) -> dict[str, Any]:
    """Start, run every row in turn, stop; return the outcome.

    `share`: of whole turns. `everywhere`: on all systems that a row fits; else on those that a quick run
    measures. `skipped`: systems that cannot be had, each with the reason; those that do not start are added.
    """
    found_on, stolen = machine(), Stolen()
    results = Results()
    for name, reason in skipped.items():
        console.print(f"[yellow]{name} is left out:[/] {reason}", highlight=False)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="side-by-side-") as name:
        folder = Path(name)
        os.chmod(folder, 0o755)  # noqa: PTH101 - PostgreSQL's servers run as another user
        last = [each for each in systems if each.starts_last]
        running = await started([each for each in systems if each not in last], folder, skipped)
        try:
            to_come = [*running, *(each for each in last if not each.missing())]
            plan = planned(rows, to_come, everywhere=everywhere)
            show_plan(plan, turns, share, minutes)
            pace = Pace(plan, turns, share, begin + minutes * 60 - STOPPING_S)
            await run(planned(rows, running, everywhere=everywhere), pace, results, teller(pace, begin))
            for system in last:
                come = await started([system], folder, skipped)
                running += come
                await run(planned(rows, come, everywhere=everywhere), pace, results, teller(pace, begin))
        finally:
            for system in systems:
                if system in running or system.name in skipped:
                    await _stopped(system)
    found_on["stolen_percent"] = stolen.percent()
    found_on["minutes"] = round((time.monotonic() - begin) / 60, 1)
    return outcome(results, running, skipped, found_on)


async def _stopped(system: System) -> None:
    stopping = asyncio.ensure_future(system.stop())
    await asyncio.wait([stopping], timeout=60)
    if (
        stopping.done()
        and (error := stopping.exception()) is not None
        and not isinstance(error, AttributeError)
    ):
        console.print(f"{system.name}, while stopping: {error}")


def show(found: dict[str, Any]) -> None:
    """Print a line for each row and system."""
    table = Table("work", "system", "min / median / max", "missing against fsync on a majority of three")
    for row, texts in lines(found):
        for number, (name, text) in enumerate(texts.items()):
            table.add_row(row.title if not number else "", name, text, found["systems"][name]["mark"])
        table.add_section()
    Console(width=None if os.isatty(1) else 160).print(table)


def main(
    row: Annotated[list[str] | None, typer.Option(help="only this row (repeatable)")] = None,
    only: Annotated[str, typer.Option(help="only these systems, with commas between")] = "",
    quick: Annotated[bool, typer.Option(help="few rows and systems, short turns: two minutes")] = False,
    turns: Annotated[int, typer.Option(min=1, help="turns of each row")] = TURNS,
    minutes: Annotated[
        float | None,
        typer.Option(help="what all may take, by shortened turns if need be [14.5; quick: 2]"),
    ] = None,
    out: Annotated[Path, typer.Option(help="folder of the report")] = Path("out"),
) -> None:
    """Measure tarry and its peers side by side."""
    chosen_by_hand = bool(row or only)
    try:
        rows = [row_of(name) for name in row or ()] or [r for r in ROWS if (r.quick if quick else r.in_full)]
        systems = chosen(only, quick)
    except KeyError as unknown:
        raise typer.BadParameter(str(unknown.args[0])) from None
    found = asyncio.run(
        measure(
            rows,
            systems,
            turns=turns,
            minutes=minutes or (QUICK_MINUTES if quick else MINUTES),
            share=QUICK_SHARE if quick else 1.0,
            everywhere=chosen_by_hand or not quick,
            skipped={} if chosen_by_hand or quick else dict(NOT_TO_BE_HAD),
        )
    )
    show(found)
    out.mkdir(parents=True, exist_ok=True)
    name = "side_by_side_part" if chosen_by_hand or quick else "side_by_side"
    (out / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    report = out / f"{name}.html"
    report.write_text(page(found))
    console.print(f"{found['machine']['minutes']} minutes; report: {report}", highlight=False)
    print(json.dumps(found))


if __name__ == "__main__":
    typer.run(main)
