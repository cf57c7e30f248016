"""``tarry topic``, ``tarry group`` and ``tarry redrive``: what an operator looks after."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from tarry.client.aio import Client
from tarry.client.console_options import EXIT_CODES, OnCluster, on_cluster
from tarry.client.console_output import print_fields, words
from tarry.client.console_times import parse_start
from tarry.client.console_topic_settings import show, topic_app
from tarry.client.operator import Redriven

group_app = typer.Typer(no_args_is_help=True, help="Make, move and delete groups.")

Topic = Annotated[str, typer.Argument(help="The topic.")]
Group = Annotated[str, typer.Argument(help="The group.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@topic_app.command("show", epilog=EXIT_CODES)
@on_cluster()
def show_topic(
    topic: Topic,
    *,
    cluster: OnCluster,
) -> None:
    """Show a topic, its settings and groups."""

    async def work(client: Client) -> None:
        show(await client.operator().describe_topic(topic), cluster.output)

    cluster.run(work)


@topic_app.command("delete", epilog=EXIT_CODES)
@on_cluster()
def delete_topic(
    topic: Topic,
    yes: Yes = False,
    *,
    cluster: OnCluster,
) -> None:
    """Delete a topic with everything in it."""
    if not yes:
        typer.confirm(f"Delete topic {topic} and all its messages?", abort=True, err=True)

    async def work(client: Client) -> None:
        released = await client.operator().delete_topic(topic)
        print_fields({"topic": topic, "deleted": True, "released": released}, cluster.output)

    cluster.run(work)


@group_app.command("create", epilog=EXIT_CODES)
@on_cluster()
def create_group(
    topic: Topic,
    group: Group,
    start: Annotated[
        str,
        typer.Option("--from", metavar="WHERE", help="earliest, latest, or a time."),
    ] = "earliest",
    *,
    cluster: OnCluster,
) -> None:
    """Make a group for consumers to come."""
    where = parse_start(start)

    async def work(client: Client) -> None:
        offset = await client.operator().create_group(topic, group, where)
        print_fields({"topic": topic, "group": group, "offset": offset}, cluster.output)

    cluster.run(work)


@group_app.command("seek", epilog=EXIT_CODES)
@on_cluster()
def seek_group(
    topic: Topic,
    group: Group,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="WHERE", help="earliest, latest, or a time."),
    ] = None,
    offset: Annotated[int | None, typer.Option(min=0, help="Or an offset.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")] = False,
    yes: Yes = False,
    *,
    cluster: OnCluster,
) -> None:
    """Move a group in its topic: back to see messages again, ahead to skip them."""
    if (to is None) == (offset is None):
        raise typer.BadParameter("give one of --to and --offset")
    where = None if to is None else parse_start(to)
    if not (yes or dry_run):
        typer.confirm(f"Move group {group} of {topic}? --dry-run counts what it means.", abort=True, err=True)

    async def work(client: Client) -> None:
        sought = await client.operator().seek_group(topic, group, where, offset=offset, dry_run=dry_run)
        print_fields({"topic": topic, "group": group, **asdict(sought), "dry_run": dry_run}, cluster.output)

    cluster.run(work)


@group_app.command("delete", epilog=EXIT_CODES)
@on_cluster()
def delete_group(
    topic: Topic,
    group: Group,
    yes: Yes = False,
    *,
    cluster: OnCluster,
) -> None:
    """Delete a group: where it was, and its retries."""
    if not yes:
        typer.confirm(f"Delete group {group} of topic {topic}?", abort=True, err=True)

    async def work(client: Client) -> None:
        left = await client.operator().delete_group(topic, group)
        print_fields(
            {"topic": topic, "group": group, "deleted": True, "unacknowledged": left}, cluster.output
        )

    cluster.run(work)


@on_cluster()
def redrive(
    topic: Annotated[str, typer.Argument(help="The dead-letter topic, dlq.GROUP.TOPIC.")],
    reason: Annotated[str, typer.Option(help="Only letters with this reason: NACKED or LEASE_EXPIRED.")] = "",
    tag: Annotated[list[str] | None, typer.Option(help="Only letters with any of these.")] = None,
    most: Annotated[int, typer.Option("--max", min=0, help="Give back so many.", show_default="all")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    *,
    cluster: OnCluster,
) -> None:
    """Give dead letters to the groups that gave them up, once more."""

    async def work(client: Client) -> None:
        with words().status("redriving") as spinner:

            def show(progress: Redriven) -> None:
                spinner.update(f"redriving: {progress.redriven:,} of {progress.looked_at:,} looked at")

            done = await client.operator().redrive(
                topic, reason=reason, tags=tag or (), messages_max=most, dry_run=dry_run, on_progress=show
            )
        print_fields({"topic": topic, **asdict(done), "dry_run": dry_run}, cluster.output)

    cluster.run(work)
