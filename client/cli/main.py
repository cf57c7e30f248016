"""The client's commands. Each is a function; ``on_cluster`` adds what all of them are told of the cluster.

``tarry.node`` adds those that run nodes; together they are the program ``tarry``.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tarry.client.aio import Client
from tarry.client.cli import consume, ledger, members, reconcile, schedule, topics
from tarry.client.cli.consume import ack, extend, nack, receive
from tarry.client.cli.options import EXIT_CODES, OnCluster, on_cluster
from tarry.client.cli.output import Output, body_fields, print_fields, print_outcomes
from tarry.client.cli.status import print_status
from tarry.client.cli.times import time_text
from tarry.client.cli.topics import topic_app
from tarry.client.results import CancelOutcome, StoredMessage

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command(epilog=EXIT_CODES)(schedule.schedule)
app.command(epilog=EXIT_CODES)(consume.consume)
app.command(epilog=EXIT_CODES)(receive)
for command in (ack, nack, extend):
    app.command(epilog="Exit code 1 also where a message was not in hand any more. " + EXIT_CODES)(command)
app.command(epilog=EXIT_CODES)(topics.redrive)
app.command(epilog=reconcile.EXIT_CODES)(reconcile.reconcile)
app.add_typer(topic_app, name="topic")
app.add_typer(topics.group_app, name="group")
app.add_typer(members.member_app, name="member")
app.add_typer(ledger.ledger_app, name="ledger")


@app.command(epilog=EXIT_CODES)
@on_cluster()
def get(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="As schedule printed it.")],
    *,
    cluster: OnCluster,
) -> None:
    """Show a message as it is now."""

    async def work(client: Client) -> None:
        print_fields(_fields(await client.producer().get(message_id), cluster.output), cluster.output)

    cluster.run(work)


@app.command(epilog="Exit code 1 also where a message was not cancelled. " + EXIT_CODES)
@on_cluster()
def cancel(
    message_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="As schedule printed them.")],
    *,
    cluster: OnCluster,
) -> None:
    """Cancel messages before they are due."""

    async def work(client: Client) -> None:
        outcomes = await client.producer().cancel_many(message_ids)
        print_outcomes("id", zip(message_ids, outcomes, strict=True), CancelOutcome.CANCELLED, cluster.output)

    cluster.run(work)


@app.command(epilog=EXIT_CODES)
@on_cluster()
def status(
    digest: Annotated[
        bool, typer.Option("--digest", help="With a digest of every node's state, for who may operate.")
    ] = False,
    *,
    cluster: OnCluster,
) -> None:
    """Show the cluster: every node's own word, what is pending, and how far groups are."""

    async def work(client: Client) -> None:
        operator = client.operator()
        await operator.status()  # also learns the addresses of all members
        print_status(await operator.status_of_all(digest=digest), cluster.output)

    cluster.run(work)


@app.command(epilog=EXIT_CODES)
@on_cluster()
def transfer(
    to: Annotated[
        str, typer.Option(metavar="NODE", help="Name of the node to lead; else the most advanced follower.")
    ] = "",
    *,
    cluster: OnCluster,
) -> None:
    """Hand leadership to another node, losing and repeating nothing."""

    async def work(client: Client) -> None:
        done = await client.operator().transfer(to)
        print_fields({"leader": done.leader, "term": done.term, "pause_ms": done.pause_ms}, cluster.output)

    cluster.run(work)


def _fields(message: StoredMessage, output: Output) -> dict[str, object]:
    due: int | str = message.due_ms if output is Output.JSON else time_text(message.due_ms)
    return {
        "id": message.id,
        "topic": message.topic,
        "state": message.state.value,
        "due_ms" if output is Output.JSON else "due": due,
        "tags": list(message.tags),
        "keys": list(message.keys),
        "ordering_key": message.ordering_key,
        "properties": dict(message.properties),
        **body_fields(message.body),
    }
