"""``tarry group``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from tarry.client.aio import Client
from tarry.client.cli.options import OnCluster, cluster_command
from tarry.client.cli.output import Output, fields_of, print_fields, print_json, print_rows, words
from tarry.client.cli.policies import PolicyFlags, Unset, json_of, texts_of
from tarry.client.cli.times import duration_option, start_option, time_text
from tarry.client.cli.topics import Topic, Yes
from tarry.client.operators.group_policy import GroupDescription

group_app = typer.Typer(no_args_is_help=True, help="Make, change, show, move and delete groups.")
Group = Annotated[str, typer.Argument(help="The group.")]


@cluster_command(group_app, "set")
async def set_group(
    client: Client,
    topic: Topic,
    group: Group,
    unset: Unset = None,
    *,
    policy: PolicyFlags,
    cluster: OnCluster,
) -> None:
    """Change how messages are delivered to a group; what is not given stays.

    It counts at once for what is delivered from then on, and under every leader.
    """
    given = policy.given()
    if not (given or unset):
        raise typer.BadParameter("give something to set, or --unset")
    _show(topic, await client.operator().set_group(topic, group, unset=unset or (), **given), cluster.output)


@cluster_command(group_app, "show")
async def show_group(client: Client, topic: Topic, group: Group, *, cluster: OnCluster) -> None:
    """Show a group, how messages are delivered to it, and who says so: itself, its topic or the cluster.

    Below are its consumers: where each is, and what it has in hand.
    """
    _show(topic, await client.operator().describe_group(topic, group), cluster.output)


def _show(topic: str, group: GroupDescription, output: Output) -> None:
    status = asdict(group.status)
    if output is Output.JSON:
        policy = {"policy": json_of(group.policy), "own": json_of(group.own), "set_by": group.set_by}
        consumers = [asdict(consumer) for consumer in group.consumers]
        told = {"consumer_list": consumers, "consumers_left_out": group.consumers_left_out}
        print_json({"topic": topic, **status, **policy, **told})
        return
    texts = {name: f"{text} ({group.set_by[name]})" for name, text in texts_of(group.policy).items()}
    print_fields({"topic": topic, **status, **texts}, output)
    _print_consumers(group)


CONSUMER_COLUMNS = (
    "consumer", "address", "by", "connected", "since", "credit", "in_hand", "first_lease_ends", "tags",
    "filter", "topics",
)  # fmt: skip


def _print_consumers(group: GroupDescription) -> None:
    """Print a row for each consumer, if there are any."""
    rows = [
        {
            **fields_of(consumer, "consumer", "address", "connected", "credit", "in_hand", "filter"),
            "tags": list(consumer.tags_shown),
            "topics": list(consumer.topics_shown),
            "by": "calls" if consumer.polls else "stream" if consumer.since_ms else "",
            "since": time_text(consumer.since_ms) if consumer.since_ms else "",
            "first_lease_ends": time_text(consumer.lease_end_ms) if consumer.lease_end_ms else "",
        }
        for consumer in group.consumers
    ]
    if rows:
        print_rows(rows, CONSUMER_COLUMNS, title="consumers")
    if group.consumers_left_out:
        words().print(f"and {group.consumers_left_out:,} more consumers")


@cluster_command(group_app, "create")
async def create_group(
    client: Client,
    topic: Topic,
    group: Group,
    start: Annotated[Any, start_option("--from", help="earliest, latest, or a time.")] = "earliest",
    expiry_ms: Annotated[
        int, duration_option("--expiry", help="Delete it when nobody has used it for so long; 0s: never.")
    ] = 0,
    *,
    cluster: OnCluster,
) -> None:
    """Make a group before its consumers come. It stays until it is deleted, unless it has an expiry.

    One that is there, whoever made it, gets the expiry, or none; else it stays as it is.
    """
    offset = await client.operator().create_group(topic, group, start, expiry_ms=expiry_ms)
    print_fields({"topic": topic, "group": group, "offset": offset}, cluster.output)


@cluster_command(group_app, "seek")
def seek_group(
    topic: Topic,
    group: Group,
    to: Annotated[Any, start_option("--to", help="earliest, latest, or a time.")] = None,
    offset: Annotated[int | None, typer.Option(min=0, help="Or an offset.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")] = False,
    yes: Yes = False,
    *,
    cluster: OnCluster,
) -> None:
    """Move a group in its topic: back to see messages again, ahead to skip them."""
    if (to is None) == (offset is None):
        raise typer.BadParameter("give one of --to and --offset")
    if not (yes or dry_run):
        typer.confirm(f"Move group {group} of {topic}? --dry-run counts what it means.", abort=True, err=True)

    async def work(client: Client) -> None:
        sought = await client.operator().seek_group(topic, group, to, offset=offset, dry_run=dry_run)
        print_fields({"topic": topic, "group": group, **asdict(sought), "dry_run": dry_run}, cluster.output)

    cluster.run(work)


@cluster_command(group_app, "delete")
def delete_group(topic: Topic, group: Group, yes: Yes = False, *, cluster: OnCluster) -> None:
    """Delete a group: its position and its retries."""
    if not yes:
        typer.confirm(f"Delete group {group} of topic {topic}?", abort=True, err=True)

    async def work(client: Client) -> None:
        left = await client.operator().delete_group(topic, group)
        print_fields(
            {"topic": topic, "group": group, "deleted": True, "unacknowledged": left}, cluster.output
        )

    cluster.run(work)
