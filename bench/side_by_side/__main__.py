"""tarry and what one would pick instead, side by side: the same work, the same cores, turn by turn.

    python -m tarry.bench.side_by_side                                # everything, some 15 minutes
    python -m tarry.bench.side_by_side --quick                        # two minutes
    python -m tarry.bench.side_by_side --row schedule_1000x100 --only tarry,etcd3
    python -m tarry.bench.side_by_side --readme out/side_by_side.json # the README's table from a run

Prints a table, writes a report (HTML) and the figures (JSON) to `--out`; the figures again are the last line.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from rich.console import Console
from rich.table import Table

from tarry.bench.side_by_side.figures import lines, markdown, outcome
from tarry.bench.side_by_side.peers import chosen
from tarry.bench.side_by_side.rows import ROWS, Row, row_of
from tarry.bench.side_by_side.system import System
from tarry.bench.side_by_side.turns import Cell, Results, run

console = Console(stderr=True, width=None if os.isatty(2) else 200)


def machine() -> dict[str, Any]:
    """Return what the figures were measured on."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        named = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = named[0].partition(":")[2].strip() if named else cpu
    return {
        "cores": os.cpu_count(),
        "cpu": cpu,
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


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


def tell(row: Row, system: System, number: int, cell: Cell) -> None:
    """Show progress: the last turn's main figure."""
    if cell.failed:
        console.print(f"  {row.name} {system.name}: [red]{cell.failed}[/]", highlight=False)
        return
    turn = cell.turns[-1]
    said = "  ".join(f"{name} {value:,.2f}" for name, value in turn.figures.items())
    judged = "" if not any(vars_of(turn.verdict)) else f"  [red]{turn.verdict}[/]"
    console.print(f"  {row.name} {system.name} turn {number + 1}: {said}{judged}", highlight=False)


def vars_of(verdict: object) -> list[int]:
    return [getattr(verdict, name) for name in ("lost", "early", "duplicates", "changed")]


async def measure(rows: list[Row], systems: list[System], turns: int, quick: bool) -> dict[str, Any]:
    """Start, run every row in turn, stop; return the outcome."""
    found_on = machine()
    results, skipped = Results(), dict[str, str]()
    with tempfile.TemporaryDirectory(prefix="side-by-side-") as name:
        folder = Path(name)
        os.chmod(folder, 0o755)  # noqa: PTH101 - PostgreSQL's servers run as another user
        running = await started(systems, folder, skipped)
        try:
            await run(rows, running, turns, quick, results, tell)
        finally:
            for system in systems:
                if system in running or system.name in skipped:
                    await _stopped(system)
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
    turns: Annotated[int, typer.Option(min=1, help="turns of each row")] = 3,
    out: Annotated[Path, typer.Option(help="folder of the report")] = Path("out"),
    readme: Annotated[Path | None, typer.Option(help="print the README's table of a run's JSON")] = None,
) -> None:
    """Measure tarry and its peers side by side."""
    if readme is not None:
        print(markdown(json.loads(readme.read_text())))
        return
    try:
        rows = (
            [row_of(name) for name in row]
            if row
            else [r for r in ROWS if (r.in_quick if quick else r.in_full)]
        )
        systems = chosen(only, quick)
    except KeyError as unknown:
        raise typer.BadParameter(str(unknown.args[0])) from None
    found = asyncio.run(measure(rows, systems, turns, quick))
    show(found)
    out.mkdir(parents=True, exist_ok=True)
    (out / "side_by_side.json").write_text(json.dumps(found, indent=1))
    from tarry.bench.side_by_side.report import write

    console.print(f"report: {write(found, out)}")
    print(json.dumps(found))


if __name__ == "__main__":
    typer.run(main)
