"""``tarry receive``, ``ack``, ``nack``, ``extend``: consuming call by call, also from one run to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeAlias

import typer

from tarry.client.aio import AckOutcome, Client
from tarry.client.console_consume import print_message
from tarry.client.console_options import OnCluster, on_cluster
from tarry.client.console_output import REFUSED, Output, print_json, print_rows, words
from tarry.client.console_times import parse_duration_ms
from tarry.client.hand import Verdict

Topic: TypeAlias = Annotated[str, typer.Argument(help="The topic.")]
Handles: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="QUEUE:OFFSET...", help="As receive printed them.")
]
Group: TypeAlias = Annotated[str, typer.Option("--group", "-g", help="The consumer's group.")]
Name: TypeAlias = Annotated[
    str, typer.Option("--name", "-n", help="The consumer; who settles has the name of who received.")
]


@on_cluster()
def receive(
    topic: Topic,
    group: Group = "console",
    name: Name = "console",
    most: Annotated[int, typer.Option("--max", min=1, help="At most so many messages.")] = 1,
    wait_ms: Annotated[
        int,
        typer.Option(
            "--wait",
            parser=parse_duration_ms,
            metavar="DURATION",
            help="For the first of them, up to 30s.",
            show_default="0s",
        ),
    ] = 0,
    lease_ms: Annotated[
        int,
        typer.Option(
            "--lease",
            parser=parse_duration_ms,
            metavar="DURATION",
            help="How long they may stay in hand.",
            show_default="as the cluster has it",
        ),
    ] = 0,
    tag: Annotated[list[str] | None, typer.Option(help="Only messages with any of these.")] = None,
    *,
    cluster: OnCluster,
) -> None:
    """Take what is due, one a line, and keep it until its lease is over: ack it before.

    Each line begins with the QUEUE:OFFSET that ack, nack and extend ask for.
    """

    async def work(client: Client) -> None:
        puller = client.puller(topic, group, name=name, tags=tag or (), lease_ms=lease_ms)
        messages = await puller.receive(most, wait_ms=wait_ms)
        for message in messages:
            print_message(message, cluster.output, f"{message.queue}:{message.offset}  ")
        if cluster.output is Output.TABLE:
            words().print(f"{len(messages):,} messages")

    cluster.run(work)


@on_cluster()
def ack(
    topic: Topic, handles: Handles, group: Group = "console", name: Name = "console", *, cluster: OnCluster
) -> None:
    """Acknowledge what receive took: it is done."""
    _settle(topic, group, name, handles, Verdict, cluster)


@on_cluster()
def nack(
    topic: Topic,
    handles: Handles,
    group: Group = "console",
    name: Name = "console",
    delay_ms: Annotated[
        int | None,
        typer.Option(
            "--delay",
            parser=parse_duration_ms,
            metavar="DURATION",
            help="Until it comes again.",
            show_default="by the back-off table",
        ),
    ] = None,
    *,
    cluster: OnCluster,
) -> None:
    """Send what receive took round again, later."""
    _settle(topic, group, name, handles, lambda queue: Verdict.nacking(queue, delay_ms), cluster)


@on_cluster()
def extend(
    topic: Topic,
    handles: Handles,
    lease_ms: Annotated[
        int,
        typer.Option("--lease", parser=parse_duration_ms, metavar="DURATION", help="From now on."),
    ],
    group: Group = "console",
    name: Name = "console",
    *,
    cluster: OnCluster,
) -> None:
    """Keep what receive took for longer."""
    _settle(topic, group, name, handles, lambda queue: Verdict.extending(queue, lease_ms), cluster)


def _settle(
    topic: str,
    group: str,
    name: str,
    handles: list[str],
    verdict: Callable[[int], Verdict],
    cluster: OnCluster,
) -> None:
    by_queue: dict[int, list[int]] = {}
    for handle in handles:
        queue, _, offset = handle.partition(":")
        if not (queue.isdecimal() and offset.isdecimal()):
            raise typer.BadParameter(f"{handle!r} is not QUEUE:OFFSET, as receive prints it")
        by_queue.setdefault(int(queue), []).append(int(offset))

    async def work(client: Client) -> None:
        puller = client.puller(topic, group, name=name)
        rows: list[dict[str, object]] = []
        for queue, offsets in by_queue.items():
            outcomes = await puller.settle(verdict(queue), offsets)
            rows += [
                {"handle": f"{queue}:{offset}", "outcome": outcome.value}
                for offset, outcome in zip(offsets, outcomes, strict=True)
            ]
        if cluster.output is Output.JSON:
            print_json(rows)
        else:
            print_rows("", rows, ["handle", "outcome"])
        if any(row["outcome"] == AckOutcome.STALE for row in rows):
            raise typer.Exit(REFUSED)

    cluster.run(work)
