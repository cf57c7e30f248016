"""The commands of the Spark jobs: `python -m tarry.spark --help`."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.table import Table

from tarry.spark import generate as making
from tarry.spark.errors import SparkJobError
from tarry.spark.reconcile import Options, Reconciliation
from tarry.spark.session import SMALL, session
from tarry.spark.summary import FIGURES, write

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
words = Console(stderr=True, highlight=False)

BROKEN, UNUSABLE = 1, 3
EXIT_CODES = "Exit codes: 0 every promise kept, 1 one broken, 2 wrong usage, 3 nothing can be said (and why)."


class Output(StrEnum):
    """The forms of output."""

    TABLE = "table"
    JSON = "json"


def moment_ms(text: str) -> int:
    """Return an ISO time, or milliseconds since the epoch, as the latter; without a zone it is UTC."""
    if text.lstrip("-").isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no time: write 2026-11-21T07:00Z or ms since the epoch"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)


Remote: TypeAlias = Annotated[str | None, typer.Option(help="A Spark Connect server, sc://host:15002.")]
Master: TypeAlias = Annotated[
    str | None, typer.Option(help="A cluster, spark://host:7077; else this machine.")
]
Memory: TypeAlias = Annotated[int, typer.Option(min=512, help="MiB for Spark on this machine.")]
Form: TypeAlias = Annotated[Output, typer.Option("--output", "-o", help="For people, or for programs.")]


def fail(error: SparkJobError, output: Output) -> None:
    """Say why nothing can be said, and end."""
    if output is Output.JSON:
        print(json.dumps({"error": type(error).__name__, "message": str(error)}))
    else:
        words.print(f"[red]error[/] {error}")
    raise typer.Exit(UNUSABLE)


@app.command(epilog=EXIT_CODES)
def reconcile(
    ledgers: Annotated[
        list[str],
        typer.Argument(metavar="LEDGER...", help="Folders or URIs of ledgers, or of folders of them."),
    ],
    out: Annotated[str, typer.Option(help="Folder for the tables, summary.json and report.html.")],
    from_: Annotated[
        int | None,
        typer.Option("--from", parser=moment_ms, metavar="TIME", help="Messages due from then on."),
    ] = None,
    to: Annotated[
        int | None, typer.Option("--to", parser=moment_ms, metavar="TIME", help="Messages due before then.")
    ] = None,
    settle_ms: Annotated[
        int, typer.Option(min=0, help="What was due so shortly before the end may be on its way.")
    ] = 60_000,
    clock_tolerance_ms: Annotated[
        int, typer.Option(min=0, help="How far consumers' clocks may be behind the cluster's.")
    ] = 0,
    checksums: Annotated[
        bool, typer.Option(help="Read every segment once more, against its checksum.")
    ] = True,
    master: Master = None,
    remote: Remote = None,
    memory_mib: Memory = 3_072,
    small: Annotated[bool, typer.Option(help="Below a million rows: do not compile queries.")] = False,
    output: Form = Output.TABLE,
) -> None:
    """Say what was delivered once, twice, late, or never.

    The last line is JSON, and so is all of OUT/summary.json.
    """
    options = Options(ledgers, out, from_, to, settle_ms, clock_tolerance_ms, checksums)
    try:
        settings = SMALL if small else None
        spark = session(
            "tarry reconcile", master=master, remote=remote, memory_mib=memory_mib, settings=settings
        )
        job = Reconciliation(
            spark, options, lambda text: words.print(f"[dim]{datetime.now():%H:%M:%S}[/] {text}")
        )
        summary = job.run()
        write(job, summary)
    except SparkJobError as error:
        fail(error, output)
    if output is Output.TABLE:
        show(summary)
    print(json.dumps({name: summary[name] for name in FIGURES}), flush=True)
    raise typer.Exit(0 if summary["kept"] else BROKEN)


def show(summary: dict[str, Any]) -> None:
    """Print a summary for people."""
    table = Table("what", "figure", title="what the ledgers and receipts say")
    for name, value in summary.items():
        bad = (name == "violations" and value) or (name in ("missing", "early", "gaps") and value)
        text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
        table.add_row(name, f"[bold red]{text}[/]" if bad else text)
    Console(width=None if sys.stdout.isatty() else 160).print(table)


@app.command()
def generate(
    ledger: Annotated[Path, typer.Argument(help="An empty or new folder.")],
    rows: Annotated[int, typer.Option(min=1_000, help="About how many rows.")] = 1_000_000,
    planted: Annotated[int, typer.Option(min=0, help="Messages of each fault for each 40,000.")] = 2,
    seed: Annotated[int, typer.Option(help="Equal seeds make equal ledgers.")] = 1,
    output: Form = Output.TABLE,
) -> None:
    """Make up a ledger with faults in known places (truth.json names them)."""
    if ledger.exists() and any(ledger.iterdir()):
        raise typer.BadParameter(f"{ledger} is not empty: name a new folder")
    plan = making.Plan(max(1, rows // making.ROWS_EACH), planted=planted, seed=seed)
    maker = making.Generator(plan, ledger)
    for number, done in enumerate(maker.run()):
        if number % 10 == 0:
            words.print(f"{done:,} of {plan.messages:,} messages")
    result = {
        "ledger": str(ledger),
        "messages": plan.messages,
        "rows": maker.rows,
        "segments": maker.segments,
    }
    print(
        json.dumps(result) if output is Output.JSON else f"{maker.rows:,} rows in {maker.segments:,} segments"
    )


def main() -> None:
    """Run a command."""
    app()


if __name__ == "__main__":
    main()
