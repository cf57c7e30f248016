"""``tarry reconcile``: the Spark job, and the redrive of the messages that it finds missing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from tarry.client.aio import Client
from tarry.client.cli.options import OnCluster
from tarry.client.cli.output import Output, cell, fields_of, print_json, print_rows, words
from tarry.client.cli.redrive import Fate, Redriven, redrive
from tarry.proto.extras import lacking

BROKEN, UNUSABLE = 1, 3
EXIT_CODES = "Exit codes: 0 every promise kept, 1 one broken, 2 wrong usage, 3 nothing can be said (and why)."
SHOWN_MAX = 50
COLUMNS = ("id", "topic", "groups", "check", "fate", "copy", "why")


def reconcile(
    out: Annotated[
        Path, typer.Option(help="Folder for the tables, summary.json, findings.json and report.html.")
    ],
    ledgers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[LEDGER]...", help="Folders of ledgers and receipts; none: take what OUT has."
        ),
    ] = None,
    from_: Annotated[str, typer.Option("--from", metavar="TIME", help="Messages due from then on.")] = "",
    to: Annotated[str, typer.Option("--to", metavar="TIME", help="Messages due before then.")] = "",
    again: Annotated[
        bool, typer.Option("--redrive", help="Say which missing messages can be scheduled again.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --redrive: after saying so, do it.")] = False,
    spark: Annotated[
        list[str] | None,
        typer.Option(help="More for `python -m tarry.spark reconcile`: --spark=--small."),
    ] = None,
    *,
    cluster: OnCluster,
) -> None:
    """Say what was delivered once, twice, late, or never (with Spark); schedule again what was not."""
    if ledgers:
        span = [*(["--from", from_] if from_ else []), *(["--to", to] if to else [])]
        code = _job(
            [*ledgers, "--out", str(out), *span, "-o", cluster.output.value, *(spark or [])], cluster.output
        )
        if code not in (0, BROKEN) or not again:
            raise typer.Exit(code)
    elif not again:
        raise typer.BadParameter("name a LEDGER, or give --redrive to act on what --out holds")

    async def work(client: Client) -> None:
        await _redrive(client, out, cluster.output, dry_run=True)
        if yes:
            await _redrive(client, out, cluster.output, dry_run=False)

    try:
        cluster.run(work)
    except FileNotFoundError as error:
        _unusable(str(error), cluster.output)


def _unusable(why: str, output: Output) -> NoReturn:
    if output is Output.JSON:
        sys.stderr.write(json.dumps({"error": "UNUSABLE", "text": why}) + "\n")
    else:
        words().print(f"[red]error[/] {cell(why)}")
    raise typer.Exit(UNUSABLE)


def _job(arguments: list[str], output: Output) -> int:
    if text := lacking("spark"):
        _unusable(text, output)
    command = [sys.executable, "-m", "tarry.spark", "reconcile", *arguments]
    return subprocess.run(command, check=False).returncode


async def _redrive(client: Client, out: Path, output: Output, *, dry_run: bool) -> None:
    fates: Counter[Fate] = Counter()
    shown: list[Redriven] = []
    with words().status("looking") as spinner:
        async for one in redrive(client, out, dry_run=dry_run):
            fates[one.fate] += 1
            shown += [one] if len(shown) < SHOWN_MAX else []
            spinner.update(f"{fates.total():,} missing, {fates[Fate.REDRIVEN]:,} can be scheduled again")
    rows = [
        {**fields_of(one.missing, "id", "topic", "groups", "check"), **fields_of(one, "fate", "copy", "why")}
        for one in shown
    ]
    if output is Output.JSON:
        print_json({"dry_run": dry_run, **{fate.value: fates[fate] for fate in Fate}, "first": rows})
        return
    print_rows(rows, COLUMNS, title=f"the first {SHOWN_MAX}" if fates.total() > SHOWN_MAX else "")
    verb = "would be" if dry_run else "are"
    words().print(
        f"{fates[Fate.REDRIVEN]:,} {verb} scheduled again, as copies for every group of the topic"
        + ("; --yes does it" if dry_run else "")
    )
