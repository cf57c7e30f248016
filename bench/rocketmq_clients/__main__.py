"""RocketMQ's own clients at the gateway and at RocketMQ itself: rates and lateness, in turns.

    make bench-rocketmq-clients                     four languages, both systems, a pair of turns: 15 minutes
    python -m tarry.bench.rocketmq_clients --language go --pairs 3

A turn starts one system, and the programs of all languages run there one after another (`programs`). tarry
has the fresh machine in the first pair, RocketMQ in the second, and so on: only of an even number of pairs
has neither the advantage. What is measured says `programs/measure.py`. RocketMQ is a master and two slaves,
flushed before the answer, with the finest precision of its timer, 100 ms. All share the machine. The last
line is JSON: for each language the median of each figure at both, and the median ratio within a pair. Where
something fails, it has what was measured before, and the reason as `ended_by`; the exit code is 1.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tarry.bench.machine import Stolen, machine
from tarry.bench.rocketmq_clients import loopback
from tarry.bench.rocketmq_clients.figures import UNITS, Figures, figures, medians, ratios
from tarry.bench.rocketmq_clients.runs import Plan, ProgramFailed, told_by
from tarry.bench.rocketmq_clients.systems import SYSTEMS
from tarry.bench.side_by_side.servers import PeerFailed
from tarry.client.local.rocketmq_programs import LANGUAGES, NotBuilt

Found: TypeAlias = dict[str, dict[str, list[Figures]]]
"""The figures of each turn, by language and system."""

console = Console(stderr=True, highlight=False)


async def turn(found: Found, system: str, plan: Plan, number: int) -> None:
    """Add the figures of one system to what was found. Raises PeerFailed, ProgramFailed, NotBuilt."""
    with tempfile.TemporaryDirectory(prefix="tarry-bench-") as made:
        folder = Path(made)
        async with SYSTEMS[system].running(folder, [f"measure-{each}" for each in found]) as address:
            for language, by_system in found.items():
                console.print(f"turn {number}: {language} at {system}", style="dim")
                one = figures(await told_by(language, address, f"measure-{language}", plan, folder))
                by_system[system].append(one)
                console.print("  " + "  ".join(f"{name} {shown(value, 1)}" for name, value in one.items()))


async def measure(
    systems: Sequence[str], languages: Sequence[str], plan: Plan, pairs: int
) -> tuple[Found, str | None]:
    """Return what was found, and what ended it before all was measured."""
    found: Found = {each: {name: [] for name in systems} for each in languages}
    try:
        for number in range(1, pairs + 1):
            for system in systems if number % 2 else systems[::-1]:
                await turn(found, system, plan, number)
    except (PeerFailed, ProgramFailed, NotBuilt) as error:
        return found, str(error)
    return found, None


def result(found: Mapping[str, Mapping[str, Sequence[Figures]]]) -> dict[str, Any]:
    """Return medians and ratios by language."""
    told: dict[str, Any] = {}
    for language, by_system in found.items():
        told[language] = {system: medians(turns) for system, turns in by_system.items()}
        if len(by_system) == 2:
            told[language]["ratio"] = ratios(by_system["tarry"], by_system["rocketmq"])
    return told


def table(told: Mapping[str, Mapping[str, Figures]]) -> Table:
    """Return the result as a table."""
    columns = list(next(iter(told.values())))
    made = Table("client", "figure", *columns)
    for language, by_column in told.items():
        for name, what in UNITS.items():
            made.add_row(language, what, *(shown(by_column[column].get(name), 2) for column in columns))
    return made


def shown(value: float | None, decimals: int) -> str:
    """Return a figure for people; that of which nothing came as a dash."""
    return "-" if value is None else f"{value:,.{decimals}f}"


def chosen(asked: Sequence[str], missing: Mapping[str, str], what: str) -> list[str]:
    """Return what was asked for, or all that is there; say of the rest why not. Exits with 2: none is."""
    if unknown := set(asked) - missing.keys():
        console.print(f"no {what} {', '.join(sorted(unknown))}: there are {', '.join(missing)}")
        raise typer.Exit(2)
    there = []
    for name in asked or missing:
        if why := missing[name]:
            console.print(f"[yellow]{name} is left out:[/] {why}")
        else:
            there.append(name)
    if not there:
        raise typer.Exit(2)
    return there


def main(
    language: Annotated[
        list[str] | None, typer.Option(help="Only these clients; all that are there.")
    ] = None,
    system: Annotated[list[str] | None, typer.Option(help="Only these systems: tarry, rocketmq.")] = None,
    pairs: Annotated[int, typer.Option(min=1, help="Turns of each system.")] = 1,
    crowd: Annotated[int, typer.Option(min=1, help="Messages due at one instant.")] = Plan().crowd,
) -> None:
    """Measure, and print the figures. Exits with 1 where something fails."""
    networked = loopback.missing()
    missing = {name: one.missing() for name, one in SYSTEMS.items()}
    missing["rocketmq"] = missing["rocketmq"] or (networked and f"no network of its own: {networked}")
    systems = chosen(system or [], missing, "system")
    languages = chosen(language or [], {name: lacks() for name, lacks in LANGUAGES.items()}, "client")
    if "rocketmq" in systems:
        loopback.enter("tarry.bench.rocketmq_clients")
    measured_on, stolen = machine(), Stolen()
    found, ended_by = asyncio.run(measure(systems, languages, Plan(crowd=crowd), pairs))
    told = result(found)
    console.print(table(told))
    measured_on["stolen_percent"] = stolen.percent()
    print(json.dumps({"pairs": pairs, "ended_by": ended_by, "clients": told, "machine": measured_on}))
    if ended_by is not None:
        console.print(f"[red]ended before all was measured:[/] {escape(ended_by)}")
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
