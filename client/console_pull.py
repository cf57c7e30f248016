"""``tarry receive``, ``ack``, ``nack``, ``extend``: consuming call by call, also from one run to the next."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Literal, TypeAlias

import typer

from tarry.client.aio import AckOutcome, Client
from tarry.client.console_consume import print_message
from tarry.client.console_options import (
    DEFAULT_SERVERS,
    Ca,
    Certificate,
    Deadline,
    Form,
    Key,
    Server,
    Token,
    run,
)
from tarry.client.console_output import REFUSED, Output, print_json, print_rows, words
from tarry.client.console_times import parse_duration_ms

Topic: TypeAlias = Annotated[str, typer.Argument(help="What to receive.")]
Handles: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="QUEUE:OFFSET...", help="As receive printed them.")
]
Group: TypeAlias = Annotated[str, typer.Option("--group", "-g", help="The consumer's group.")]
Name: TypeAlias = Annotated[
    str, typer.Option("--name", "-n", help="The consumer; who settles has the name of who received.")
]


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
    output: Form = Output.TABLE,
    server: Server = DEFAULT_SERVERS,
    token: Token = None,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    deadline_ms: Deadline = 15_000,
) -> None:
    """Take what is due, one a line, and keep it until its lease is over: ack it before.

    Each line begins with the QUEUE:OFFSET that ack, nack and extend ask for.
    """

    async def work(client: Client) -> None:
        puller = client.puller(topic, group, name=name, tags=tag or (), lease_ms=lease_ms)
        messages = await puller.receive(most, wait_ms=wait_ms)
        for message in messages:
            print_message(message, output, f"{message.queue}:{message.offset}  ")
        if output is Output.TABLE:
            words().print(f"{len(messages):,} messages")

    run(work, output, server, token, ca, certificate, key, deadline_ms)


def ack(
    topic: Topic,
    handles: Handles,
    group: Group = "console",
    name: Name = "console",
    output: Form = Output.TABLE,
    server: Server = DEFAULT_SERVERS,
    token: Token = None,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    deadline_ms: Deadline = 15_000,
) -> None:
    """Acknowledge what receive took: it is done."""
    work = _settling(topic, group, name, handles, "ack", None, output)
    run(work, output, server, token, ca, certificate, key, deadline_ms)


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
    output: Form = Output.TABLE,
    server: Server = DEFAULT_SERVERS,
    token: Token = None,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    deadline_ms: Deadline = 15_000,
) -> None:
    """Send what receive took round again, later."""
    work = _settling(topic, group, name, handles, "nack", delay_ms, output)
    run(work, output, server, token, ca, certificate, key, deadline_ms)


def extend(
    topic: Topic,
    handles: Handles,
    lease_ms: Annotated[
        int,
        typer.Option("--lease", parser=parse_duration_ms, metavar="DURATION", help="From now on."),
    ],
    group: Group = "console",
    name: Name = "console",
    output: Form = Output.TABLE,
    server: Server = DEFAULT_SERVERS,
    token: Token = None,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    deadline_ms: Deadline = 15_000,
) -> None:
    """Keep what receive took for longer."""
    work = _settling(topic, group, name, handles, "extend", lease_ms, output)
    run(work, output, server, token, ca, certificate, key, deadline_ms)


def _settling(
    topic: str,
    group: str,
    name: str,
    handles: list[str],
    verdict: Literal["ack", "nack", "extend"],
    value_ms: int | None,
    output: Output,
) -> Callable[[Client], Awaitable[None]]:
    places = [_place(handle) for handle in handles]

    async def work(client: Client) -> None:
        puller = client.puller(topic, group, name=name)
        outcomes: dict[tuple[int, int], AckOutcome] = {}
        for queue in sorted({queue for queue, _ in places}):
            offsets = [offset for number, offset in places if number == queue]
            answers = await puller.settle(verdict, queue, offsets, value_ms)
            outcomes.update(
                {(queue, offset): answer for offset, answer in zip(offsets, answers, strict=True)}
            )
        rows = [{"handle": f"{q}:{o}", "outcome": outcome.value} for (q, o), outcome in outcomes.items()]
        if output is Output.JSON:
            print_json(rows)
        else:
            print_rows("", rows, ["handle", "outcome"])
        if any(outcome is AckOutcome.STALE for outcome in outcomes.values()):
            raise typer.Exit(REFUSED)

    return work


def _place(handle: str) -> tuple[int, int]:
    queue, _, offset = handle.partition(":")
    if not (queue.isdecimal() and offset.isdecimal()):
        raise typer.BadParameter(f"{handle!r} is not QUEUE:OFFSET, as receive prints it")
    return int(queue), int(offset)
