"""``tarry consume``, by a stream; ``receive``, ``ack``, ``nack`` and ``extend``, call by call."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypeAlias

import typer
from rich.text import Text

from tarry.client.aio import AckOutcome, Client, Consumer
from tarry.client.cli.options import OnCluster
from tarry.client.cli.output import (
    Output,
    body_fields,
    fields_of,
    in_one_line,
    out,
    print_json,
    print_outcomes,
    words,
)
from tarry.client.cli.times import duration_option, duration_text, start_option, time_text
from tarry.client.consumers.message import View
from tarry.client.consumers.unsettled import Verdict
from tarry.client.consumers.within import within

Tags: TypeAlias = Annotated[list[str] | None, typer.Option(help="Only messages with any of these.")]
Filter: TypeAlias = Annotated[
    str,
    typer.Option(
        "--filter",
        metavar="SQL",
        help="Only messages whose properties match, as \"amount > 100 AND region IN ('eu','us')\".",
        show_default=False,
    ),
]

Lease: TypeAlias = Annotated[
    int,
    duration_option(
        "--lease", help="How long a message may stay in hand.", show_default="as the cluster has it"
    ),
]


def consume(
    topics: Annotated[
        list[str], typer.Argument(metavar="TOPIC...", help="What to receive; a pattern ends in *.")
    ],
    group: Annotated[
        str,
        typer.Option(
            "--group",
            "-g",
            help="Each message goes to one consumer of each group.",
            show_default="a group of its own, deleted at the end",
        ),
    ] = "",
    tag: Tags = None,
    filter_: Filter = "",
    most: Annotated[int | None, typer.Option("--max", min=1, help="End after so many messages.")] = None,
    timeout_ms: Annotated[
        int | None, duration_option("--timeout", help="End when nothing came for so long.")
    ] = None,
    credit: Annotated[int, typer.Option(min=1, help="Messages in hand at once.")] = 100,
    lease_ms: Lease = 0,
    start: Annotated[
        Any, start_option("--from", help="Where a new group begins: earliest, latest, or a time.")
    ] = None,
    keep: Annotated[
        bool,
        typer.Option(
            "--no-ack",
            help="Do not acknowledge: the messages will be delivered again. Ends after --max or --credit.",
        ),
    ] = False,
    *,
    cluster: OnCluster,
) -> None:
    """Print messages of a topic, or of several, as they fall due, one a line, until Ctrl-C.

    Each is acknowledged once it is printed. A failover is ridden out. A pattern, such as 'orders.*', has the
    topics that come later, too; dead-letter topics only where it begins with dlq.
    """
    one = topics[0] if len(topics) == 1 and not topics[0].endswith("*") else ""

    async def work(client: Client) -> None:
        wanted = credit if most is None else most if keep else min(credit, most)
        ends_at = wanted if keep else most  # nothing more comes without an acknowledgement
        async with client.consumer(
            one,
            group or f"console-{uuid.uuid4().hex[:12]}",
            topics=() if one else topics,
            tags=tag or (),
            filter=filter_,
            credit=wanted,
            lease_ms=lease_ms,
            dedupe=True,
            start=start,
            temporary=not group,
        ) as consumer:
            shown = Shown(cluster.output, topic=not one)
            printed = await _print_all(consumer, shown, ends_at, timeout_ms, acknowledge=not keep)
        if keep and most is None and printed == credit:
            text = f"{credit:,} are in hand, as many as --credit: there may be more, which 'tarry list' shows"
            words().print(text, style="yellow", soft_wrap=True)
        if cluster.output is Output.TABLE:
            words().print(
                f"{printed:,} messages" + (f", {consumer.reconnects} reconnects" * bool(consumer.reconnects))
            )

    try:
        cluster.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


class Shown(NamedTuple):
    """Form in which deliveries are printed."""

    output: Output
    topic: bool
    """Of which topic each is, where a person reads."""


async def _print_all(
    consumer: Consumer, shown: Shown, most: int | None, timeout_ms: int | None, *, acknowledge: bool
) -> int:
    printed = 0
    while most is None or printed < most:
        try:
            message = await within(anext(consumer), timeout_ms)
        except StopAsyncIteration:
            break
        if message is None:
            break
        print_message(message, shown.output, f"{message.topic}  " if shown.topic else "")
        printed += 1
        if acknowledge:
            message.ack_soon()
    return printed


FIELDS = (
    "tags", "keys", "ordering_key", "idempotency_key", "properties", "born_ms", "stored_ms", "due_ms",
    "released_ms", "delivered_ms", "received_ms", "attempt", "maybe_duplicate", "queue", "offset",
)  # fmt: skip
"""Of a delivery, as JSON shows it after the body."""


def print_message(message: View, output: Output, ahead: str = "") -> None:
    """Print a delivery as one line."""
    late_ms = message.received_ms - message.due_ms
    if output is Output.JSON:
        head = {"id": message.id, "topic": message.topic, **body_fields(message.body)}
        ends = {"handle": handle_of(message), "node": message.stamp.node}
        print_json({**head, **fields_of(message, *FIELDS), **ends})
        return
    notes = [f"attempt {message.attempt}"] if message.attempt > 1 else []
    notes += ["maybe a duplicate"] if message.maybe_duplicate else []
    notes += [f"#{in_one_line(tag)}" for tag in message.tags]
    fields = body_fields(message.body)
    line = Text.assemble(
        ahead,
        (message.id, "cyan"),
        f"  {time_text(message.due_ms)}  ",
        (f"{'+' if late_ms >= 0 else ''}{duration_text(late_ms)}", "green" if late_ms < 1_000 else "yellow"),
        (f"  {' '.join(notes)}" if notes else "", "magenta"),
        f"  {in_one_line(fields.get('body', ''))}",
        (f"base64 {fields['body_base64']}" if "body_base64" in fields else "", "dim"),
    )
    out().print(line, soft_wrap=True)


Topic: TypeAlias = Annotated[str, typer.Argument(help="The topic.")]

Group: TypeAlias = Annotated[str, typer.Option("--group", "-g", help="The consumer's group.")]

Name: TypeAlias = Annotated[
    str, typer.Option("--name", "-n", help="The consumer; who settles has the name of who received.")
]


async def receive(
    client: Client,
    topic: Annotated[str, typer.Argument(help="The topic, or a pattern of several, which ends in *.")],
    group: Group = "console",
    name: Name = "console",
    most: Annotated[int, typer.Option("--max", min=1, help="At most so many messages.")] = 1,
    wait_ms: Annotated[
        int, duration_option("--wait", help="For the first of them, up to 30s.", show_default="0s")
    ] = 0,
    lease_ms: Lease = 0,
    tag: Tags = None,
    filter_: Filter = "",
    *,
    cluster: OnCluster,
) -> None:
    """Receive due messages, one a line, under a lease: ack them before it ends.

    Each line begins with the handle that ack, nack and extend ask for, behind the topic, which they ask
    for as well, where a pattern has several.
    """
    puller = client.puller(topic, group, name=name, tags=tag or (), filter=filter_, lease_ms=lease_ms)
    messages = await puller.receive(most, wait_ms=wait_ms)
    for message in messages:
        ahead = "" if puller.topic else f"{message.topic}  "
        print_message(message, cluster.output, f"{ahead}{handle_of(message)}  ")
    if cluster.output is Output.TABLE:
        words().print(f"{len(messages):,} messages")


HANDLE = re.compile(r"([0-9]{1,20}):([0-9]{1,20})(?::([0-9a-f]{1,16}))?")
"""Queue, offset, and in hexadecimal the incarnation of a cluster that was restored or recovered."""


def handle_of(message: View) -> str:
    """Return what ack, nack and extend name a received message by."""
    incarnation = message.batch.incarnation
    return f"{message.queue}:{message.offset}" + f":{incarnation:x}" * bool(incarnation)


@dataclass(frozen=True, slots=True)
class Received:
    """The options that name messages that receive printed."""

    topic: Topic
    handles: Annotated[
        list[str], typer.Argument(metavar="QUEUE:OFFSET[:INCARNATION]...", help="As receive printed them.")
    ]
    group: Group = "console"
    name: Name = "console"

    async def settle(self, client: Client, verdict: Callable[[int], Verdict], output: Output) -> None:
        """Give the verdict on each queue's messages, and print the outcomes."""
        by_queue: dict[tuple[int, int], list[tuple[str, int]]] = {}
        for handle in self.handles:
            found = HANDLE.fullmatch(handle)
            if found is None:
                raise typer.BadParameter(f"{handle!r} is not QUEUE:OFFSET, as receive prints it")
            queue, offset, of = found.groups("0")
            by_queue.setdefault((int(queue), int(of, 16)), []).append((handle, int(offset)))
        puller = client.puller(self.topic, self.group, name=self.name)
        outcomes: list[tuple[str, AckOutcome]] = []
        for (number, incarnation), listed in by_queue.items():
            of_queue = verdict(number)._replace(incarnation=incarnation)
            answers = await puller.settle(of_queue, [offset for _, offset in listed])
            outcomes += zip([handle for handle, _ in listed], answers, strict=True)
        print_outcomes("handle", outcomes, AckOutcome.OK, output)


async def ack(client: Client, received: Received, *, cluster: OnCluster) -> None:
    """Acknowledge messages that receive printed: they are done."""
    await received.settle(client, Verdict, cluster.output)


async def nack(
    client: Client,
    received: Received,
    delay_ms: Annotated[
        int | None,
        duration_option("--delay", help="Until it comes again.", show_default="by the back-off table"),
    ] = None,
    dead_letter: Annotated[
        bool, typer.Option("--dead-letter", help="Not again: they are dead letters at once.")
    ] = False,
    *,
    cluster: OnCluster,
) -> None:
    """Have messages that receive printed delivered again, later, or no more."""
    await received.settle(
        client,
        lambda queue: Verdict.nacking(queue, delay_ms, dead_letter=dead_letter),
        cluster.output,
    )


async def extend(
    client: Client,
    received: Received,
    lease_ms: Annotated[int, duration_option("--lease", help="From now on.")],
    *,
    cluster: OnCluster,
) -> None:
    """Extend the leases of messages that receive printed."""
    await received.settle(client, lambda queue: Verdict.extending(queue, lease_ms), cluster.output)
