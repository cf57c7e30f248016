"""``tarry topic`` with a topic's settings, ``tarry group`` and ``tarry redrive``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Annotated, cast

import typer

from tarry.client.aio import Client
from tarry.client.cli.options import EXIT_CODES, OnCluster, on_cluster
from tarry.client.cli.output import Output, print_fields, print_json, words
from tarry.client.cli.status import print_topics
from tarry.client.cli.times import duration_option, duration_text, parse_start, time_text
from tarry.client.operators.cluster_operator import Operator, Redriven, TopicDescription
from tarry.client.operators.topic_settings import Misfire, TopicOptions

topic_app = typer.Typer(no_args_is_help=True, help="Make, change, show and delete topics.")

Topic = Annotated[str, typer.Argument(help="The topic.")]

Retention = Annotated[
    int | None,
    duration_option(
        "--retention", help="How long released messages are kept at least; 0s: the cluster's default."
    ),
]

Body = Annotated[int | None, typer.Option("--body-bytes-max", min=0, help="Largest body; 0: the cluster's.")]

Rate = Annotated[
    int | None,
    typer.Option("--rate", min=0, help="Messages a second opened for delivery, the rest waits; 0: no bound."),
]

Pending = Annotated[
    int | None, typer.Option("--pending-max", min=0, help="More in the wheel are refused; 0: no bound.")
]

Policy = Annotated[
    Misfire | None,
    typer.Option(help="What becomes of messages released too late, after downtime or a wrong clock."),
]

After = Annotated[
    int | None, duration_option("--misfire-after", help="From how late on a message has misfired.")
]

CatchUp = Annotated[
    int | None, typer.Option("--catch-up-rate", min=0, help="Misfired messages a second, for catch-up.")
]


Work = Callable[[Operator, str, TopicOptions], Awaitable[TopicDescription]]


def _with_settings(name: str, help_text: str, work: Work) -> None:
    @topic_app.command(name, help=help_text, epilog=EXIT_CODES)
    @on_cluster()
    def command(
        topic: Topic,
        retention_ms: Retention = None,
        body_bytes_max: Body = None,
        release_per_s_max: Rate = None,
        pending_max: Pending = None,
        misfire: Policy = None,
        misfire_after_ms: After = None,
        catch_up_per_s_max: CatchUp = None,
        *,
        cluster: OnCluster,
    ) -> None:
        settings = {
            "retention_ms": retention_ms,
            "body_bytes_max": body_bytes_max,
            "release_per_s_max": release_per_s_max,
            "pending_max": pending_max,
            "misfire": misfire,
            "misfire_after_ms": misfire_after_ms,
            "catch_up_per_s_max": catch_up_per_s_max,
        }
        given = cast(TopicOptions, {key: value for key, value in settings.items() if value is not None})

        async def done(client: Client) -> None:
            show(await work(client.operator(), topic, given), cluster.output)

        cluster.run(done)


_with_settings(
    "create",
    "Make a topic. One that is there gets these settings, and the defaults for all others.",
    lambda operator, topic, given: operator.create_topic(topic, **given),
)
_with_settings(
    "set",
    "Change settings of a topic; what is not given stays. Another rate counts at once.",
    lambda operator, topic, given: operator.change_topic(topic, **given),
)


def show(topic: TopicDescription, output: Output) -> None:
    """Print a topic, its settings and groups."""
    status, settings = topic.status, topic.settings
    if output is Output.JSON:
        print_json({**asdict(status), **settings})
        return
    rate, retention, body = (
        settings["release_per_s_max"],
        settings["retention_ms"],
        settings["body_bytes_max"],
    )
    fields: dict[str, object] = {
        "topic": status.topic,
        "pending": f"{status.pending:,}"
        + (f" of {settings['pending_max']:,}" if settings["pending_max"] else ""),
        "released": status.released,
        "first offset": status.first_offset,
        "retention": duration_text(retention) if retention else "the cluster's",
        "largest body": f"{body:,} bytes" if body else "the cluster's",
        "rate": f"{rate:,} a second" if rate else "no bound",
    }
    if status.held_back:
        fields["held back"] = f"{status.held_back:,}, until {time_text(status.held_until_ms)}"
    if settings["misfire_after_ms"]:
        fields["misfire"] = f"{settings['misfire']} after {duration_text(settings['misfire_after_ms'])}"
    if settings["catch_up_per_s_max"]:
        fields["catch-up rate"] = f"{settings['catch_up_per_s_max']:,} a second"
    if status.misfires_dropped:
        fields["misfires dropped"] = status.misfires_dropped
    print_fields(fields, output)
    if status.groups:
        print_topics([status])


group_app = typer.Typer(no_args_is_help=True, help="Make, move and delete groups.")

Group = Annotated[str, typer.Argument(help="The group.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@topic_app.command("show", epilog=EXIT_CODES)
@on_cluster()
def show_topic(topic: Topic, *, cluster: OnCluster) -> None:
    """Show a topic, its settings and groups."""

    async def work(client: Client) -> None:
        show(await client.operator().describe_topic(topic), cluster.output)

    cluster.run(work)


@topic_app.command("delete", epilog=EXIT_CODES)
@on_cluster()
def delete_topic(topic: Topic, yes: Yes = False, *, cluster: OnCluster) -> None:
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
def delete_group(topic: Topic, group: Group, yes: Yes = False, *, cluster: OnCluster) -> None:
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
