"""Output of commands: a table for people or JSON for programs, on stdout; words about it on stderr."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NoReturn

import typer
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table

from tarry.client.errors import Refused, TarryError

REFUSED = 1
UNAVAILABLE = 3
_WRITTEN_OUT = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code not in (9, 10)}
WIDE = 240
"""Columns where the output is no terminal: ids must come out whole."""


class Output(StrEnum):
    """The forms of output."""

    TABLE = "table"
    JSON = "json"


def out() -> Console:
    """Return the console of results."""
    return Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else WIDE)


def words() -> Console:
    """Return the console of everything else."""
    return Console(stderr=True, highlight=False, emoji=False)


def print_json(value: object) -> None:
    """Print a value as one line of JSON, at once."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def fields_of(thing: object, *names: str) -> dict[str, object]:
    """Return the named attributes by their names."""
    return {name: getattr(thing, name) for name in names}


def print_fields(values: Mapping[str, object], output: Output) -> None:
    """Print one thing: its fields under each other, or an object."""
    if output is Output.JSON:
        print_json(values)
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in values.items():
        table.add_row(f"[dim]{name}[/dim]", cell(value))
    out().print(table)


def print_rows(
    rows: Sequence[Mapping[str, object]],
    columns: Iterable[str],
    output: Output = Output.TABLE,
    title: str = "",
) -> None:
    """Print a table of the named columns, or all of the rows as JSON."""
    if output is Output.JSON:
        print_json(rows)
    else:
        out().print(table_of(rows, columns, title))


def table_of(
    rows: Sequence[Mapping[str, object]], columns: Iterable[str], title: str = "", *, cut: bool = False
) -> Table:
    """Return a table of the named columns; ``cut``: a line for each row, however narrow it is."""
    table = Table(title=title, title_justify="left")
    names = list(columns)
    for name in names:
        numbers = all(isinstance(row.get(name), int) for row in rows)
        justify: JustifyMethod = "right" if numbers and rows else "left"
        table.add_column(name.replace("_", " "), justify=justify, no_wrap=cut)
    for row in rows:
        table.add_row(*(cell(row.get(name)) for name in names))
    return table


def print_outcomes(name: str, outcomes: Iterable[tuple[str, StrEnum]], done: StrEnum, output: Output) -> None:
    """Print the outcome of each thing; exit with REFUSED where one of them is not ``done``."""
    rows = [{name: thing, "outcome": outcome.value} for thing, outcome in outcomes]
    print_rows(rows, [name, "outcome"], output)
    if any(row["outcome"] != done for row in rows):
        raise typer.Exit(REFUSED)


def cell(value: object) -> str:
    """Return a value as a table shows it; nothing in it is taken for markup, or steers the terminal."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        text = " ".join(f"{key}={item}" for key, item in value.items())
    elif isinstance(value, list | tuple):
        text = " ".join(map(str, value))
    else:
        text = "" if value is None else str(value)
    return escape(visible(text))


def visible(text: str) -> str:
    """Return a text with its control characters written out, but for line breaks and tabs."""
    return text if text.isprintable() else text.translate(_WRITTEN_OUT)


def in_one_line(text: str) -> str:
    """Return a text as a line shows it, without what steers the terminal."""
    return visible(text).replace("\n", "\\n")


def body_fields(body: bytes) -> dict[str, Any]:
    """Return the body as text where it is UTF-8, else as base64 under another name."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def fail(error: TarryError, output: Output) -> NoReturn:
    """Print the error and its advice on stderr; exit with 1 where refused, else 3."""
    advice = (type(error).__doc__ or "").split("\n\n", maxsplit=1)[0]
    if output is Output.JSON:
        fault = {"error": error.reason, "text": error.text, "facts": dict(error.facts), "advice": advice}
        sys.stderr.write(json.dumps(fault, ensure_ascii=False) + "\n")
    else:
        kind = "refused" if isinstance(error, Refused) else "failed"
        console = words()
        console.print(f"[bold red]{kind}: {cell(error.reason)}[/bold red]", soft_wrap=True)
        console.print(f"  {cell(error.text)}", soft_wrap=True)
        for name, value in error.facts.items():
            console.print(f"  {cell(name)}: {cell(value)}", soft_wrap=True)
        console.print(f"  [dim]{cell(advice)}[/dim]", soft_wrap=True)
    raise typer.Exit(REFUSED if isinstance(error, Refused) else UNAVAILABLE)
