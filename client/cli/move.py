"""``tarry export`` and ``tarry import``: pending messages into Parquet, and schedules from elsewhere."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final, NoReturn, TypeVar, cast

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tarry.client.aio import Client
from tarry.client.bulk.values import (
    ENCODINGS,
    TARGETS,
    UNITS,
    Columns,
    DryRun,
    Exported,
    Files,
    Imported,
    InvalidSource,
    Overdue,
    PostgresqlTable,
    RedisSet,
    Source,
    Unsure,
)
from tarry.client.cli.options import EXIT_CODES, OnCluster
from tarry.client.cli.output import REFUSED, Output, cell, print_fields, print_json, words
from tarry.client.cli.times import time_option, time_text
from tarry.proto.extras import require

DEADLINE_MS: Final = 60_000
IMPORT_EXIT_CODES: Final = "Exit code 1 also where rows were refused. " + EXIT_CODES
_CHOICES: Final = {"--due-unit": UNITS, "--body": ENCODINGS, "--overdue": ("now", "skip"),
                   "--unsure": ("stop", "send", "skip")}  # fmt: skip
_State = TypeVar("_State", Exported, Imported, DryRun)


async def export(
    client: Client,
    to: Annotated[Path, typer.Argument(metavar="FILE|FOLDER", help="New; a name with a suffix is a file's.")],
    topic: Annotated[list[str] | None, typer.Option(help="Only of this topic; may be repeated.")] = None,
    from_: Annotated[int | None, time_option("--from", help="Only what is due then or later.")] = None,
    until: Annotated[int | None, time_option("--until", help="Only what is due before.")] = None,
    node: Annotated[
        str, typer.Option(metavar="NODE", help="The member to ask; else the follower that has most.")
    ] = "",
    *,
    cluster: OnCluster,
) -> None:
    """Write what is pending to Parquet, as of one entry of the log, while the cluster runs.

    It has all that was acknowledged before the command began. A folder gets files of a million rows.
    Retries, dead letters and the half messages of open transactions are left out, and counted. tarry import
    reads it into another cluster.
    """
    require("parquet")
    states = client.bulk().export(
        to, topics=topic or (), due_from_ms=from_ or 0, due_to_ms=until or 0, node=node
    )
    last = await _followed(states, f"exporting to {to}", cluster.output)
    assert isinstance(last, Exported)
    fields = {**asdict(last), "unreadable_ids": list(last.unreadable_ids)}
    del fields["done"]
    if cluster.output is Output.TABLE:
        fields["now"] = time_text(fields.pop("now_ms"))
    print_fields(fields, cluster.output)


async def import_(
    client: Client,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="An export; a CSV or Parquet file; redis://host:port/db; postgresql://user@host/database.",
        ),
    ],
    progress: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Of its progress and id map; else named after the source."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and check every row, send nothing.")
    ] = False,
    topic: Annotated[str, typer.Option(help="Topic of all rows, where no column tells it.")] = "",
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT=NAME", help=f"The source's column of {', '.join(TARGETS)}; may be repeated."
        ),
    ] = None,
    due_unit: Annotated[
        str, typer.Option(help="Of due times that are numbers: ms, s, or auto: s below 100,000,000,000.")
    ] = "auto",
    body: Annotated[
        str, typer.Option(help="How bodies are written: text (as they are), base64 or hex.")
    ] = "text",
    mark: Annotated[
        str, typer.Option(metavar="NAME", help="Set the properties imported_from=NAME and imported_id.")
    ] = "",
    overdue: Annotated[
        str, typer.Option(help="Rows due before it began: now (deliver at once) or skip.")
    ] = "now",
    from_: Annotated[int | None, time_option("--from", help="Skip rows that are due before then.")] = None,
    unsure: Annotated[
        str,
        typer.Option(help="Rows of a cluster that has forgotten this import: stop, send (marked) or skip."),
    ] = "stop",
    zset: Annotated[
        str, typer.Option(metavar="KEY", help="Of Redis: the sorted set; its scores are due times.")
    ] = "",
    hash_: Annotated[
        str, typer.Option("--hash", metavar="KEY", help="Of Redis: the hash with the members' bodies.")
    ] = "",
    key_prefix: Annotated[
        str, typer.Option(metavar="PREFIX", help="Of Redis: the body is the string at PREFIX + member.")
    ] = "",
    table: Annotated[str, typer.Option(help="Of PostgreSQL: the table.")] = "",
    where: Annotated[str, typer.Option(metavar="SQL", help="Of PostgreSQL: a condition on its rows.")] = "",
    query: Annotated[
        str, typer.Option(metavar="SQL", help="Of PostgreSQL: a query instead of a table.")
    ] = "",
    *,
    cluster: OnCluster,
) -> None:
    """Schedule what another system or cluster has waiting: each row once, however often this is run.

    It goes on where it was ended, when it is given again. The folder of its progress has in ids/ what became
    of each row: its new id, or why it was refused. Nothing is deleted from the source.
    """
    for name, value in {
        "--due-unit": due_unit,
        "--body": body,
        "--overdue": overdue,
        "--unsure": unsure,
    }.items():
        if value not in _CHOICES[name]:
            raise typer.BadParameter(f"{value!r}: give one of {', '.join(_CHOICES[name])}", param_hint=name)
    require("parquet")
    read = _source(source, zset, hash_, key_prefix, table, where, query)
    columns = Columns(_names(column or ()), topic, due_unit, body, mark)
    folder = progress or Path(f"{_name_of(read)}.import")
    bulk, faults = client.bulk(), _faults()
    try:
        if dry_run:
            counted = await _followed(
                bulk.dry_run(read, columns, overdue=cast(Overdue, overdue), due_from_ms=from_ or 0),
                f"reading {source}",
                cluster.output,
            )
            assert isinstance(counted, DryRun)
            _show_dry_run(counted, cluster.output)
            raise typer.Exit(REFUSED if counted.refused else 0)
        states = bulk.import_rows(
            read,
            folder,
            columns,
            overdue=cast(Overdue, overdue),
            due_from_ms=from_ or 0,
            unsure=cast(Unsure, unsure),
        )
        last = await _followed(states, f"importing {_name_of(read)}", cluster.output)
    except faults as error:
        _failed(str(error), cluster.output)
    assert isinstance(last, Imported)
    fields = asdict(last)
    del fields["done"], fields["total"]
    print_fields({**fields, "id_map": f"{last.folder}/ids"}, cluster.output)
    raise typer.Exit(REFUSED if last.refused else 0)


def _faults() -> tuple[type[Exception], ...]:
    """Return what ends an import; they are made where pyarrow is loaded."""
    from tarry.client.bulk.import_run import ClusterDiffers, CountDiffers, UnsureSteps
    from tarry.client.bulk.progress import ProgressDiffers

    return InvalidSource, CountDiffers, ClusterDiffers, UnsureSteps, ProgressDiffers


def _source(given: str, key: str, hash_: str, prefix: str, table: str, where: str, query: str) -> Source:
    """Return what is named. Raises typer.BadParameter."""
    if given.startswith(("redis://", "rediss://", "unix://")):
        require("redis")
        if not key:
            raise typer.BadParameter("name the sorted set", param_hint="--zset")
        if hash_ and prefix:
            raise typer.BadParameter("give one of --hash and --key-prefix", param_hint="--hash")
        return RedisSet(given, key, hash_, prefix)
    if given.startswith(("postgresql://", "postgres://")):
        require("postgresql")
        if bool(table) == bool(query):
            raise typer.BadParameter("name the rows with one of --table and --query", param_hint="--table")
        if where and query:
            raise typer.BadParameter("put the condition into the query", param_hint="--where")
        return PostgresqlTable(given, table, query, where)
    if any((key, hash_, prefix, table, where, query)):
        raise typer.BadParameter(
            "--zset, --hash, --key-prefix, --table, --where, --query are for URLs of databases"
        )
    return Files(Path(given))


def _names(given: Iterable[str]) -> dict[str, str]:
    names = {}
    for one in given:
        target, equals, name = one.partition("=")
        if target not in TARGETS or not equals or not name:
            text = f"{one!r}: write WHAT=NAME, where WHAT is one of {', '.join(TARGETS)}"
            raise typer.BadParameter(text, param_hint="--column")
        names[target] = name
    return names


def _name_of(source: Source) -> str:
    if isinstance(source, Files):
        return source.path.name
    name = source.key if isinstance(source, RedisSet) else source.table or "query"
    return "".join(character if character.isalnum() or character in "._-" else "-" for character in name)


async def _followed(states: AsyncGenerator[_State], what: str, output: Output) -> _State:
    """Return the last of the states, showing how far each is."""
    last: _State | None = None
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:,.0f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=words(), transient=True) as shown:
        task = shown.add_task(what, total=None)
        async with aclosing(states):
            try:
                async for last in states:
                    if isinstance(last, Exported):
                        done, total = last.messages, last.pending
                    else:
                        done, total = last.rows, last.total
                    shown.update(task, completed=done, total=max(1, total) if total is not None else None)
            except FileExistsError as error:
                _failed(f"{error.filename}: {error.strerror}", output)
    assert last is not None
    return last


def _show_dry_run(counted: DryRun, output: Output) -> None:
    if output is Output.JSON:
        fields = asdict(counted)
        del fields["done"], fields["total"]
        print_json(fields)
        return
    fields = {
        name: getattr(counted, name)
        for name in ("rows", "messages", "overdue", "refused", "skipped", "body_bytes")
    }
    for name in ("first_due", "last_due"):
        value = getattr(counted, f"{name}_ms")
        fields[name] = "" if value is None else time_text(value)
    print_fields(
        {
            **fields,
            "topics": counted.topics,
            **{f"due from {time_text(hour)}": count for hour, count in counted.by_hour.items()},
            **{f"refused: {reason}": text for reason, text in counted.faults.items()},
        },
        output,
    )


def _failed(text: str, output: Output) -> NoReturn:
    if output is Output.JSON:
        sys.stderr.write(json.dumps({"error": "NOT_DONE", "text": text}, ensure_ascii=False) + "\n")
    else:
        words().print(f"[bold red]not done:[/bold red] {cell(text)}", soft_wrap=True)
    raise typer.Exit(REFUSED)
