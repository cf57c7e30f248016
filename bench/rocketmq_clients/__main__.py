"""RocketMQ's own clients at the gateway and at RocketMQ itself: rates and lateness, in turns.

    make bench-rocketmq-clients                     four languages, both systems, a pair of turns: 15 minutes
    python -m tarry.bench.rocketmq_clients --language go --pairs 3

A turn starts one system, and the programs of all languages run there one after another (`programs`). Every
other pair begins with the other system, so that neither always has the fresh machine. What is measured says
`programs/measure.py`. RocketMQ is a master and two slaves, flushed before the answer, with the finest
precision of its timer, 100 ms. All share the machine. The last line is JSON: for each language the median of
each figure at both, and the median ratio within a pair.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tarry.bench.machine import Stolen, machine
from tarry.bench.rocketmq_clients import loopback
from tarry.bench.rocketmq_clients.figures import UNITS, Figures, figures, medians, ratios
from tarry.bench.rocketmq_clients.runs import Plan, told_by
from tarry.bench.rocketmq_clients.systems import SYSTEMS
from tarry.client.local.rocketmq_programs import LANGUAGES

console = Console(stderr=True, highlight=False)


async def turn(system: str, languages: Sequence[str], plan: Plan, number: int) -> dict[str, Figures]:
    """Return the figures of one system, by language. Raises PeerFailed, ProgramFailed, NotBuilt."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="tarry-bench-") as made:
        folder = Path(made)
        async with SYSTEMS[system].running(folder, [f"measure-{each}" for each in languages]) as address:
            for language in languages:
                console.print(f"turn {number}: {language} at {system}", style="dim")
                told = await told_by(language, address, f"measure-{language}", plan, folder)
                found[language] = figures(told)
                shown = "  ".join(f"{name} {value:,.1f}" for name, value in found[language].items())
                console.print(f"  {shown}")
    return found


async def measure(
    systems: Sequence[str], languages: Sequence[str], plan: Plan, pairs: int
) -> dict[str, dict[str, list[Figures]]]:
    """Return the figures of each turn, by language and system."""
    found: dict[str, dict[str, list[Figures]]] = {each: {name: [] for name in systems} for each in languages}
    for number in range(1, pairs + 1):
        for system in systems if number % 2 else systems[::-1]:
            for language, one in (await turn(system, languages, plan, number)).items():
                found[language][system].append(one)
    return found


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
            shown = [by_column[column].get(name) for column in columns]
            made.add_row(language, what, *("" if value is None else f"{value:,.2f}" for value in shown))
    return made


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
    """Measure, and print the figures."""
    networked = loopback.missing()
    missing = {name: one.missing() for name, one in SYSTEMS.items()}
    missing["rocketmq"] = missing["rocketmq"] or (networked and f"no network of its own: {networked}")
    systems = chosen(system or [], missing, "system")
    languages = chosen(language or [], {name: lacks() for name, lacks in LANGUAGES.items()}, "client")
    if "rocketmq" in systems:
        loopback.enter("tarry.bench.rocketmq_clients")
    measured_on, stolen = machine(), Stolen()
    found = asyncio.run(measure(systems, languages, Plan(crowd=crowd), pairs))
    told = result(found)
    console.print(table(told))
    measured_on["stolen_percent"] = stolen.percent()
    print(json.dumps({"pairs": pairs, "clients": told, "machine": measured_on}))


if __name__ == "__main__":
    typer.run(main)
