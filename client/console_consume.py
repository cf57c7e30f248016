"""``tarry consume``: prints due messages as they come, and acknowledges them."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from rich.text import Text

from tarry.client.aio import Client, Consumer
from tarry.client.console_options import OnCluster, on_cluster
from tarry.client.console_output import Output, body_fields, out, print_json, words
from tarry.client.console_times import duration_text, parse_duration_ms, parse_start, time_text
from tarry.client.delivery import View


@on_cluster()
def consume(
    topic: Annotated[str, typer.Argument(help="What to receive.")],
    group: Annotated[
        str, typer.Option("--group", "-g", help="Each message goes to one consumer of each group.")
    ] = "console",
    tag: Annotated[list[str] | None, typer.Option(help="Only messages with any of these.")] = None,
    most: Annotated[int | None, typer.Option("--max", min=1, help="End after so many messages.")] = None,
    timeout_ms: Annotated[
        int | None,
        typer.Option(
            "--timeout",
            parser=parse_duration_ms,
            metavar="DURATION",
            help="End when nothing came for so long.",
        ),
    ] = None,
    credit: Annotated[int, typer.Option(min=1, help="Messages in hand at once.")] = 100,
    lease_ms: Annotated[
        int,
        typer.Option(
            "--lease",
            parser=parse_duration_ms,
            metavar="DURATION",
            help="How long a message may stay in hand.",
            show_default="as the cluster has it",
        ),
    ] = 0,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="Where a new group begins: earliest, latest, or a time.",
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--no-ack", help="Do not acknowledge: the messages will be delivered again.")
    ] = False,
    *,
    cluster: OnCluster,
) -> None:
    """Print messages of a topic as they fall due, one a line, until Ctrl-C.

    Each is acknowledged once it is printed. A failover is ridden out.
    """

    where = None if start is None else parse_start(start)

    async def work(client: Client) -> None:
        wanted = credit if most is None else min(credit, most)
        async with client.consumer(
            topic, group, tags=tag or (), credit=wanted, lease_ms=lease_ms, dedupe=True, start=where
        ) as consumer:
            printed = await _print_all(consumer, cluster.output, most, timeout_ms, acknowledge=not keep)
        if cluster.output is Output.TABLE:
            words().print(
                f"{printed:,} messages" + (f", {consumer.reconnects} reconnects" * bool(consumer.reconnects))
            )

    try:
        cluster.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


async def _print_all(
    consumer: Consumer, output: Output, most: int | None, timeout_ms: int | None, *, acknowledge: bool
) -> int:
    printed = 0
    timeout_s = None if timeout_ms is None else timeout_ms / 1_000
    while most is None or printed < most:
        try:
            message = await asyncio.wait_for(anext(consumer), timeout_s)
        except (TimeoutError, StopAsyncIteration):
            break
        print_message(message, output)
        printed += 1
        if acknowledge:
            message.ack_soon()
    return printed


def print_message(message: View, output: Output, ahead: str = "") -> None:
    """Print a delivery as one line."""
    late_ms = message.received_ms - message.due_ms
    if output is Output.JSON:
        print_json(
            {
                "id": message.id,
                "topic": message.topic,
                **body_fields(message.body),
                "tags": list(message.tags),
                "keys": list(message.keys),
                "ordering_key": message.ordering_key,
                "properties": dict(message.properties),
                "due_ms": message.due_ms,
                "released_ms": message.released_ms,
                "received_ms": message.received_ms,
                "attempt": message.attempt,
                "maybe_duplicate": message.maybe_duplicate,
                "queue": message.queue,
                "offset": message.offset,
                "node": message.stamp.node,
            }
        )
        return
    notes = [f"attempt {message.attempt}"] if message.attempt > 1 else []
    notes += ["maybe a duplicate"] if message.maybe_duplicate else []
    notes += [f"#{tag}" for tag in message.tags]
    fields = body_fields(message.body)
    line = Text.assemble(
        ahead,
        (message.id, "cyan"),
        f"  {time_text(message.due_ms)}  ",
        (f"{'+' if late_ms >= 0 else ''}{duration_text(late_ms)}", "green" if late_ms < 1_000 else "yellow"),
        (f"  {' '.join(notes)}" if notes else "", "magenta"),
        f"  {fields.get('body', '')}",
        (f"base64 {fields['body_base64']}" if "body_base64" in fields else "", "dim"),
    )
    out().print(line, soft_wrap=True)
