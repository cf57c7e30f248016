"""``tarry transaction``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from tarry.client.aio import Client
from tarry.client.cli.options import OnCluster, cluster_command
from tarry.client.cli.output import Output, print_fields, print_json, print_rows, words
from tarry.client.cli.times import duration_text, time_text
from tarry.client.transactions.half import TransactionInfo, TransactionState

transaction_app = typer.Typer(
    no_args_is_help=True, help="Look at transactional messages, and end those that no producer ends."
)
Group = Annotated[str, typer.Argument(help="The producer group.")]
Name = Annotated[str, typer.Argument(help="The transaction's name.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
LISTED = ("number", "group", "name", "topic", "state", "prepared", "due", "checks", "next_check", "ended")


@cluster_command(transaction_app, "list")
async def list_transactions(
    client: Client,
    group: Annotated[str, typer.Option("--group", "-g", help="Only those of this producer group.")] = "",
    topic: Annotated[str, typer.Option("--topic", "-t", help="Only those of this topic.")] = "",
    ended: Annotated[
        bool, typer.Option("--ended", help="Instead of the open ones the latest that have ended.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 1_000,
    *,
    cluster: OnCluster,
) -> None:
    """List open transactions by number; as JSON one a line, as they come."""
    shown: list[TransactionInfo] = []
    with words().status("looking for transactions") as looking:
        found = client.transactions().list(producer_group=group, topic=topic, ended=ended, limit=limit)
        async for transaction in found:
            shown.append(transaction)
            if cluster.output is Output.JSON:
                print_json(asdict(transaction))
            if len(shown) % 1_000 == 0:
                looking.update(f"{len(shown):,} transactions found")
    if cluster.output is Output.TABLE:
        if shown:
            print_rows([_row(transaction) for transaction in shown], LISTED)
        words().print(f"{len(shown):,} transactions")
    if len(shown) == limit:
        words().print(f"there may be more: give a greater --limit than {limit}", style="dim")


@cluster_command(transaction_app, "commit")
def commit(group: Group, name: Name, yes: Yes = False, *, cluster: OnCluster) -> None:
    """Commit a transaction: its message is delivered when it is due. It cannot be taken back."""
    if not yes:
        typer.confirm(f"Commit transaction {name} of {group}?", abort=True, err=True)

    async def work(client: Client) -> None:
        show(await client.transactions().commit(group, name), cluster.output)

    cluster.run(work)


@cluster_command(transaction_app, "rollback")
def rollback(group: Group, name: Name, yes: Yes = False, *, cluster: OnCluster) -> None:
    """Roll a transaction back: its message is never delivered. It cannot be taken back."""
    if not yes:
        typer.confirm(f"Roll back transaction {name} of {group}?", abort=True, err=True)

    async def work(client: Client) -> None:
        show(await client.transactions().rollback(group, name), cluster.output)

    cluster.run(work)


def show(transaction: TransactionInfo, output: Output) -> None:
    """Print a transaction."""
    if output is Output.JSON:
        print_json(asdict(transaction))
        return
    fields = {name: value for name, value in _row(transaction).items() if value != ""}
    if transaction.state is TransactionState.COMMITTED:
        fields |= {"id": transaction.id, "message_due": time_text(transaction.message_due_ms)}
    print_fields(fields, output)


def _row(transaction: TransactionInfo) -> dict[str, Any]:
    due = (
        f"{duration_text(transaction.delay_ms)} after the commit" if transaction.delay_ms is not None else ""
    )
    return {
        "number": transaction.number,
        "group": transaction.producer_group,
        "name": transaction.name,
        "topic": transaction.topic,
        "state": str(transaction.state),
        "prepared": time_text(transaction.prepared_ms),
        "due": due if transaction.due_ms is None else time_text(transaction.due_ms),
        "checks": transaction.checks,
        "next_check": time_text(transaction.next_check_ms) if transaction.next_check_ms else "",
        "ended": time_text(transaction.ended_ms) if transaction.ended_ms else "",
    }
