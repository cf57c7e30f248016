"""The commands of the Spark jobs: `python -m tarry.spark --help`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tarry.proto.extras import require

require("spark")

from pyspark.sql import SparkSession

from tarry.spark import generate as making
from tarry.spark import monitor as watching
from tarry.spark.bundle import bundle
from tarry.spark.errors import SparkJobError
from tarry.spark.reconcile import Options, Reconciliation
from tarry.spark.scale import measured
from tarry.spark.session import SMALL, session
from tarry.spark.summary import FIGURES

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
words = Console(stderr=True, highlight=False, emoji=False)

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
Secret: TypeAlias = Annotated[str | None, typer.Option(envvar="TARRY_TOKEN", help="The nodes' bearer token.")]


def pem(name: str, what: str) -> Any:
    """Return an option that names a PEM file."""
    variable = f"TARRY_TLS_{name.upper()}"
    return typer.Option(f"--tls-{name}", envvar=variable, exists=True, dir_okay=False, help=what)


AUTHORITY = "PEM file of the nodes' authority, for the workers too; turns TLS on."
Ca: TypeAlias = Annotated[Path | None, pem("ca", AUTHORITY)]
Certificate: TypeAlias = Annotated[Path | None, pem("certificate", "PEM file of this client's certificate.")]
Key: TypeAlias = Annotated[Path | None, pem("key", "PEM file of its private key.")]
Form: TypeAlias = Annotated[Output, typer.Option("--output", "-o", help="For people, or for programs.")]


def fail(error: SparkJobError, output: Output) -> None:
    """Say why nothing can be said, and end."""
    if output is Output.JSON:
        print(json.dumps({"error": type(error).__name__, "message": str(error)}))
    else:
        words.print(f"[red]error[/] {escape(str(error))}")
    raise typer.Exit(UNUSABLE)


@app.command(epilog=EXIT_CODES)
def reconcile(
    ledgers: Annotated[
        list[str],
        typer.Argument(metavar="LEDGER...", help="Folders or URIs of ledgers, or of folders of them."),
    ],
    out: Annotated[
        str, typer.Option(help="Folder for the tables, summary.json, findings.json and report.html.")
    ],
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
    each: Annotated[
        bool, typer.Option("--each", help="Each LEDGER is of a cluster of its own, and goes to OUT/its name.")
    ] = False,
    output: Form = Output.TABLE,
) -> None:
    """Say what was delivered once, twice, late, or never.

    The last line is JSON, and so is all of OUT/summary.json. With --each there is a line for each LEDGER, and
    the last one names those whose promises were not kept, and those of which nothing can be said.
    """
    options = Options(ledgers, out, from_, to, settle_ms, clock_tolerance_ms, checksums)
    try:
        settings = SMALL if small else None
        spark = session(
            "tarry reconcile", master=master, remote=remote, memory_mib=memory_mib, settings=settings
        )
        if each:
            reconcile_each(spark, options, output)
        summary = reconciled(spark, options, output)
    except SparkJobError as error:
        fail(error, output)
    print(json.dumps({name: summary[name] for name in FIGURES}), flush=True)
    raise typer.Exit(0 if summary["kept"] else BROKEN)


def reconciled(spark: SparkSession, options: Options, output: Output) -> dict[str, Any]:
    """Return the summary of a run of the job, written and shown. Raises SparkJobError."""
    job = Reconciliation(spark, options, said)
    summary = job.run()
    job.write(summary)
    if output is Output.TABLE:
        show(summary)
    return summary


def reconcile_each(spark: SparkSession, options: Options, output: Output) -> None:
    """Reconcile each ledger by itself, in the one session, and end with what they come to."""
    broken, unusable = [], []
    for number, ledger in enumerate(options.ledgers, 1):
        name = ledger.rstrip("/").rpartition("/")[2]
        said(f"{number} of {len(options.ledgers)}: {name}")
        try:
            one = replace(options, ledgers=[ledger], out=f"{options.out}/{name}")
            summary = reconciled(spark, one, output)
        except SparkJobError as error:
            unusable.append(name)
            print(json.dumps({"ledger": ledger, "error": type(error).__name__, "message": str(error)}))
            continue
        broken += [] if summary["kept"] else [name]
        print(json.dumps({"ledger": ledger} | {figure: summary[figure] for figure in FIGURES}), flush=True)
    print(json.dumps({"ledgers": len(options.ledgers), "broken": broken, "unusable": unusable}), flush=True)
    raise typer.Exit(BROKEN if broken else UNUSABLE if unusable else 0)


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


@app.command()
def monitor(
    out: Annotated[
        str, typer.Option(help="Folder for the counts and the checkpoint, from which it goes on.")
    ],
    ledgers: Annotated[
        list[str] | None, typer.Argument(metavar="[LEDGER]...", help="Folders to follow.")
    ] = None,
    nodes: Annotated[str | None, typer.Option(help="host:port of the nodes to follow instead.")] = None,
    token: Secret = None,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    every_s: Annotated[int, typer.Option(min=1, help="Seconds from batch to batch.")] = 10,
    once: Annotated[bool, typer.Option("--once", help="End when what is closed now is counted.")] = False,
    master: Master = None,
    remote: Remote = None,
    memory_mib: Memory = 1_024,
    output: Form = Output.TABLE,
) -> None:
    """Count duplicates and lateness a minute, as segments are closed.

    The counts are in OUT/minutes; with --once it ends, with a row, or a line of JSON, for each minute, topic
    and group.
    """
    if bool(ledgers) == bool(nodes):
        raise typer.BadParameter("name either LEDGER folders or --nodes")
    if bool(certificate) != bool(key) or (certificate and not ca):
        raise typer.BadParameter("--tls-certificate, --tls-key and --tls-ca go together")
    pems = {"authority": ca, "certificate": certificate, "key": key}
    secrets = {name: str(pem.absolute()) for name, pem in pems.items() if pem is not None}
    try:
        spark = session("tarry monitor", master=master, remote=remote, memory_mib=memory_mib)
        query = watching.start(
            spark, ",".join(ledgers) if ledgers else None, out, nodes=nodes,
            secrets=secrets | ({"token": token} if token else {}), once=once, every_s=every_s,
            told=lambda number: said(f"batch {number}"),
        )  # fmt: skip
        query.awaitTermination()
    except SparkJobError as error:
        fail(error, output)
    minutes = watching.minutes(spark, out).orderBy("from_ms", "topic", "group").toLocalIterator()
    if output is Output.TABLE:
        show_rows(row.asDict() for row in minutes)
        return
    for row in minutes:
        print(json.dumps(row.asDict()), flush=True)


@app.command()
def scale(
    rows: Annotated[list[int] | None, typer.Option(min=1_000, help="A size; once for each.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Where to make the ledgers; removed after.")] = None,
    memory_mib: Memory = 3_072,
    output: Form = Output.TABLE,
) -> None:
    """Make up ledgers of 1, 10 and 50 million rows, reconcile each, hold what is found to what is planted.

    50 million rows take some 2 GB of disk. A row for each size; or a line of JSON for each, and last one with
    all.
    """
    sizes = rows or [1_000_000, 10_000_000, 50_000_000]
    results = []
    try:
        spark = session("tarry scale", memory_mib=memory_mib)
    except SparkJobError as error:
        fail(error, output)
    with TemporaryDirectory(prefix="tarry-scale-", dir=folder) as made:
        for result in measured(spark, Path(made), sizes, said):
            results.append(result)
            if output is Output.JSON:
                print(json.dumps(result), flush=True)
    if output is Output.JSON:
        print(json.dumps({"sizes": results, "exact": all(one["exact"] for one in results)}), flush=True)
    else:
        show_rows(results)
    raise typer.Exit(0 if all(one["exact"] for one in results) else BROKEN)


def show_rows(of: Iterable[Mapping[str, Any]]) -> None:
    """Print equal things as a table for people."""
    listed = list(of)
    table = Table(*(listed[0] if listed else ()))
    for one in listed:
        table.add_row(*map(str, one.values()))
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def said(text: str) -> None:
    """Show progress."""
    words.print(f"[dim]{datetime.now():%H:%M:%S}[/] {escape(text)}")


@app.command("bundle")
def make_bundle(file: Annotated[Path, typer.Argument(help="The zip file to write.")]) -> None:
    """Write this program as one file for `spark-submit --py-files`."""
    print(bundle(file))


def main() -> None:
    """Run a command."""
    app()


if __name__ == "__main__":
    main()
