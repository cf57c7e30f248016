"""``tarry schedule``: one message, or many alike."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tarry.client.aio import Client
from tarry.client.cli.options import OnCluster
from tarry.client.cli.output import Output, print_fields, words
from tarry.client.cli.times import duration_option, time_option, time_text
from tarry.client.durability import Durability
from tarry.client.errors import PartlyScheduled, TarryError
from tarry.client.integers import INT64_MAX
from tarry.client.producers.batch import Time

BATCH_MESSAGES = 1_000


def schedule(
    topic: Annotated[str, typer.Argument(help="Where it goes; made when first used.")],
    body: Annotated[str, typer.Argument(help="The message; - reads it from stdin.")] = "",
    delay_ms: Annotated[
        int | None, duration_option("--delay", help="From now: 250ms, 10s, 1m30s, 2h, 7d.")
    ] = None,
    due_ms: Annotated[
        int | None,
        time_option("--due", help="ISO 8601 (UTC unless it says otherwise), or ms since the epoch."),
    ] = None,
    level: Annotated[
        int | None, typer.Option(min=1, help="Delay level of the cluster's table; 1 is the first.")
    ] = None,
    jitter_ms: Annotated[
        int, duration_option("--jitter", help="Due up to so much later, by chance.", show_default="0s")
    ] = 0,
    tag: Annotated[list[str] | None, typer.Option(help="To filter by; may be repeated.")] = None,
    key_: Annotated[list[str] | None, typer.Option("--key", help="To find it by; may be repeated.")] = None,
    property_: Annotated[
        list[str] | None, typer.Option("--property", "-p", metavar="NAME=VALUE", help="May be repeated.")
    ] = None,
    ordering_key: Annotated[
        str, typer.Option(help="Messages of one such key are delivered one after another.")
    ] = "",
    idempotency_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Schedule it only if no message of the topic has it.")
    ] = None,
    durability: Annotated[
        Durability | None,
        typer.Option(help="sync: flushed on a majority, also where the cluster's durability is async."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Read the body from a file.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Schedule so many alike, in bulk.")] = 1,
    spread_ms: Annotated[
        int,
        duration_option(
            "--spread", help="With --count: spread the due times evenly over this.", show_default="0s"
        ),
    ] = 0,
    *,
    cluster: OnCluster,
) -> None:
    """Schedule a message: give --delay, --due or --level.

    It is fsynced on a majority of nodes when this command prints its id, or written there where the cluster's
    durability is async. With --idempotency-key it may be run again: it prints the id of the first, and
    "repeated".
    """
    given = [(Time.DELAY_MS, delay_ms), (Time.DUE_MS, due_ms), (Time.DELAY_LEVEL, level)]
    times = [(kind, value) for kind, value in given if value is not None]
    if len(times) != 1:
        raise typer.BadParameter("give exactly one of --delay, --due and --level")
    kind, value = times[0]
    if spread_ms and (count == 1 or kind is Time.DELAY_LEVEL):
        raise typer.BadParameter("goes with --count and --delay or --due", param_hint="--spread")
    if count > 1 and max(value + spread_ms, count * spread_ms) > INT64_MAX:
        raise typer.BadParameter("--spread, or the time itself, is beyond any due time")
    if idempotency_key is not None and (count > 1 or not idempotency_key):
        raise typer.BadParameter(
            "must not be empty, and stands for one message: leave out --count", param_hint="--idempotency-key"
        )
    content = content_of(body, file)
    properties = dict(property_of(text) for text in property_ or [])

    async def one(client: Client) -> None:
        scheduled = await client.producer().schedule(
            topic,
            content,
            due_ms=due_ms,
            delay_ms=delay_ms,
            delay_level=level,
            jitter_ms=jitter_ms,
            tags=tag or (),
            keys=key_ or (),
            properties=properties,
            ordering_key=ordering_key,
            idempotency_key=idempotency_key or "",
            durability=durability or "",
        )
        if cluster.output is Output.JSON:
            print_fields(scheduled._asdict(), cluster.output)
            return
        due = time_text(scheduled.due_ms) + (" (overdue: delivered at once)" if scheduled.overdue else "")
        repeated = {"repeated": "it was scheduled before"} if scheduled.repeated and idempotency_key else {}
        print_fields({"id": scheduled.id, "due": due, **repeated}, cluster.output)

    async def many(client: Client) -> None:
        producer, first_id, last_id, overdue = client.producer(), "", "", 0
        batch = partial(
            producer.schedule_batch,
            topic,
            jitter_ms=jitter_ms or None,
            durability=durability or "",
        )
        started = time.monotonic()
        with _progress() as progress:
            bar = progress.add_task("scheduling", total=count)
            for start in range(0, count, BATCH_MESSAGES):
                numbers = np.arange(start, min(start + BATCH_MESSAGES, count))
                column = value + numbers * spread_ms // count
                n = len(numbers)
                try:
                    scheduled = await batch(
                        [content] * n,
                        due_ms=column if kind is Time.DUE_MS else None,
                        delay_ms=column if kind is Time.DELAY_MS else None,
                        delay_level=column if kind is Time.DELAY_LEVEL else None,
                        tags=[tag] * n if tag else None,
                        keys=[key_] * n if key_ else None,
                        properties=[properties] * n if properties else None,
                        ordering_keys=[ordering_key] * n if ordering_key else None,
                    )
                except TarryError as error:
                    if not start:
                        raise
                    text = f"{start:,} of {count:,} are scheduled, {first_id} to {last_id}; then: {error}"
                    raise PartlyScheduled(text, [start], [error]) from None
                first_id, last_id = first_id or scheduled.ids[0], scheduled.ids[-1]
                overdue += len(scheduled.overdue)
                progress.advance(bar, n)
        seconds = time.monotonic() - started
        summary: dict[str, object] = {
            "scheduled": count,
            "overdue": overdue,
            "first_id": first_id,
            "last_id": last_id,
            "seconds": round(seconds, 3),
            "messages_per_second": round(count / seconds),
        }
        print_fields(summary, cluster.output)

    cluster.run(one if count == 1 else many)


def content_of(body: str, file: Path | None) -> bytes:
    """Return the body that was given, or read from a file or stdin. Raises typer.BadParameter."""
    if file is not None:
        if body:
            raise typer.BadParameter("give the body or a file, not both", param_hint="--file")
        try:
            return file.read_bytes()
        except OSError as error:
            raise typer.BadParameter(str(error), param_hint="--file") from None
    return sys.stdin.buffer.read() if body == "-" else body.encode()


def property_of(text: str) -> tuple[str, str]:
    """Return the name and value of a NAME=VALUE. Raises typer.BadParameter."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--property")
    return name, value


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=words(), transient=True, disable=not sys.stderr.isatty())
