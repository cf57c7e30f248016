"""The client's commands as one program. ``tarry.node`` adds those that run nodes, to make ``tarry``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from tarry.client.aio import Client
from tarry.client.cli import (
    audit,
    backup,
    cancel,
    changes,
    completion,
    consume,
    find,
    forecast,
    groups,
    history,
    ledger,
    list_messages,
    move,
    reconcile,
    recurring,
    schedule,
    topics,
    transaction,
    upgrade,
)
from tarry.client.cli.cluster import cluster_app
from tarry.client.cli.options import EXIT_CODES, OnCluster, cluster_command
from tarry.client.cli.output import Output, body_fields, cell, fields_of, print_fields, words
from tarry.client.cli.status import print_status
from tarry.client.cli.times import time_text
from tarry.client.cli.top import top

Node = Annotated[str, typer.Argument(help="The node's name.")]

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
member_app = typer.Typer(no_args_is_help=True, help="Add and remove nodes of a running cluster.")
cluster_command(app)(schedule.schedule)
cluster_command(app)(consume.consume)
cluster_command(app)(consume.receive)
for command in (consume.ack, consume.nack, consume.extend):
    epilog = "Exit code 1 also where a message was not in hand any more. " + EXIT_CODES
    cluster_command(app, epilog=epilog)(command)
cluster_command(app, "list")(list_messages.list_messages)
cluster_command(app, epilog=cancel.EPILOG)(cancel.cancel)
cluster_command(app)(find.find)
for change in (changes.reschedule, changes.update):
    epilog = "Exit code 1 also where a message is not as it was to be. " + EXIT_CODES
    cluster_command(app, epilog=epilog)(change)
cluster_command(app)(top)
cluster_command(app, deadline_ms=60_000)(history.history)
cluster_command(app)(forecast.forecast)
cluster_command(app)(audit.audit)
cluster_command(app)(topics.redrive)
cluster_command(app)(backup.backup)
cluster_command(app)(move.export)
cluster_command(app, "import", epilog=move.IMPORT_EXIT_CODES, deadline_ms=move.DEADLINE_MS)(move.import_)
cluster_command(app, epilog=reconcile.EXIT_CODES)(reconcile.reconcile)
app.command()(completion.completion)
app.add_typer(topics.topic_app, name="topic")
app.add_typer(groups.group_app, name="group")
app.add_typer(recurring.recurring_app, name="recurring")
app.add_typer(transaction.transaction_app, name="transaction")
app.add_typer(cluster_app, name="cluster")
app.add_typer(member_app, name="member")
app.add_typer(ledger.ledger_app, name="ledger")
app.add_typer(upgrade.upgrade_app, name="upgrade")


@cluster_command(app)
async def get(
    client: Client,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="As schedule printed it.")],
    *,
    cluster: OnCluster,
) -> None:
    """Show a message as it is now."""
    message = await client.producer().get(message_id)
    for_programs = cluster.output is Output.JSON
    fields = {
        **fields_of(message, "id", "topic", "state"),
        **({"due_ms": message.due_ms} if for_programs else {"due": time_text(message.due_ms)}),
        **fields_of(message, "tags", "keys", "ordering_key", "idempotency_key", "properties"),
        **body_fields(message.body),
    }
    print_fields(fields, cluster.output)


@cluster_command(app)
async def status(
    client: Client,
    digest: Annotated[
        bool, typer.Option("--digest", help="With a digest of every node's state, for who may operate.")
    ] = False,
    *,
    cluster: OnCluster,
) -> None:
    """Show the cluster: every node's answer, what is pending, and how far groups are."""
    operator = client.operator()
    await operator.status()  # also learns the addresses of all members
    print_status(await operator.status_of_all(digest=digest), cluster.output)


@cluster_command(app)
async def transfer(
    client: Client,
    to: Annotated[
        str, typer.Option(metavar="NODE", help="Name of the node to lead; else the most advanced follower.")
    ] = "",
    *,
    cluster: OnCluster,
) -> None:
    """Transfer leadership to another node; nothing is lost or repeated."""
    print_fields(asdict(await client.operator().transfer(to)), cluster.output)


@cluster_command(member_app, "add", deadline_ms=60_000)
async def add_member(
    client: Client,
    node: Node,
    address: Annotated[str, typer.Argument(help="Its host:port.")],
    *,
    cluster: OnCluster,
) -> None:
    """Make a node a member. It runs already, with join = true and the other nodes as its members."""
    words().print(f"{cell(node)} learns what there is; then it counts", style="dim")
    members = await client.operator().add_member(node, address, deadline_ms=cluster.deadline_ms)
    print_fields({"members": members}, cluster.output)


@cluster_command(member_app, "remove")
async def remove_member(client: Client, node: Node, *, cluster: OnCluster) -> None:
    """Remove a member; stop its process afterwards. A leader transfers leadership first."""
    print_fields({"members": await client.operator().remove_member(node)}, cluster.output)
