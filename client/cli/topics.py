"""``tarry topic`` with a topic's settings, and ``tarry redrive``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, cast

import typer

from tarry.client.aio import Client
from tarry.client.cli import bulk
from tarry.client.cli.options import OnCluster, cluster_command
from tarry.client.cli.output import Output, print_fields, print_json, words
from tarry.client.cli.policies import TopicPolicyFlags, Unset, json_of, texts_of
from tarry.client.cli.status import lateness_text, overdue_text, print_topics
from tarry.client.cli.times import duration_option, duration_text, time_text
from tarry.client.operators.cluster_operator import Redriven, TopicDescription
from tarry.client.operators.topic_settings import Misfire, TopicOptions

topic_app = typer.Typer(no_args_is_help=True, help="Make, change, show and delete topics.")

Topic = Annotated[str, typer.Argument(help="The topic.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@dataclass(frozen=True, slots=True)
class SettingOptions:
    """The options for a topic's settings; None: not given."""

    retention_ms: Annotated[
        int | None,
        duration_option(
            "--retention", help="How long released messages are kept at least; 0s: the cluster's default."
        ),
    ] = None
    body_bytes_max: Annotated[
        int | None, typer.Option("--body-bytes-max", min=0, help="Largest body; 0: the cluster's.")
    ] = None
    release_per_s_max: Annotated[
        int | None,
        typer.Option(
            "--rate", min=0, help="Messages a second opened for delivery, the rest waits; 0: no bound."
        ),
    ] = None
    pending_max: Annotated[
        int | None, typer.Option("--pending-max", min=0, help="More in the wheel are refused; 0: no bound.")
    ] = None
    misfire: Annotated[
        Misfire | None,
        typer.Option(help="What becomes of messages released too late, after downtime or a wrong clock."),
    ] = None
    misfire_after_ms: Annotated[
        int | None, duration_option("--misfire-after", help="From how late on a message has misfired.")
    ] = None
    catch_up_per_s_max: Annotated[
        int | None, typer.Option("--catch-up-rate", min=0, help="Misfired messages a second, for catch-up.")
    ] = None

    retention_bytes: Annotated[
        int | None,
        typer.Option(
            "--retention-bytes", min=0, help="Keep about so much at most for the retention; 0: no bound."
        ),
    ] = None
    retention_max_ms: Annotated[
        int | None,
        duration_option(
            "--retention-max", help="Delete after so long what slow groups have not had, too; 0s: never."
        ),
    ] = None

    def given(self) -> TopicOptions:
        """Return the settings that were given."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return cast(TopicOptions, given)


@cluster_command(topic_app, "create")
async def create_topic(
    client: Client, topic: Topic, *, settings: SettingOptions, policy: TopicPolicyFlags, cluster: OnCluster
) -> None:
    """Make a topic. One that is there gets these settings, and the defaults for all others."""
    options = settings.given() | {"group_policy": policy.given()}
    show(await client.operator().create_topic(topic, **options), cluster.output)


@cluster_command(topic_app, "set")
async def set_topic(
    client: Client,
    topic: Topic,
    unset: Unset = None,
    *,
    settings: SettingOptions,
    policy: TopicPolicyFlags,
    cluster: OnCluster,
) -> None:
    """Change settings of a topic; what is not given stays. Another rate counts at once."""
    options = settings.given() | {"group_policy": policy.given()}
    show(await client.operator().change_topic(topic, unset=unset or (), **options), cluster.output)


@cluster_command(topic_app, "show")
async def show_topic(client: Client, topic: Topic, *, cluster: OnCluster) -> None:
    """Show a topic, its settings and groups."""
    show(await client.operator().describe_topic(topic), cluster.output)


def show(topic: TopicDescription, output: Output) -> None:
    """Print a topic, its settings and groups."""
    status, settings = topic.status, topic.settings
    if output is Output.JSON:
        own = {**settings, "group_policy": json_of(settings["group_policy"])}
        counts = {"policy": json_of(topic.policy), "kept_ms": topic.retention_ms, "set_by": topic.set_by}
        print_json({**asdict(status), **own, **counts})
        return
    rate, body = settings["release_per_s_max"], settings["body_bytes_max"]
    fields: dict[str, object] = {
        "topic": status.topic,
        "pending": f"{status.pending:,}"
        + (f" of {settings['pending_max']:,}" if settings["pending_max"] else ""),
        "released": status.released,
        "first offset": status.first_offset,
        "retention": _retention(topic),
        "largest body": f"{body:,} bytes" if body else "the cluster's",
        "rate": f"{rate:,} a second" if rate else "no bound",
    }
    if settings["retention_bytes"]:
        fields["retention"] = f"{fields['retention']}, at most {settings['retention_bytes']:,} bytes"
    if settings["retention_max_ms"]:
        fields["gone after"] = duration_text(settings["retention_max_ms"])
    if status.overdue:
        fields["overdue"] = overdue_text(status)
    if status.lateness.released:
        fields["lateness"] = lateness_text(status.lateness)
    if status.held_back:
        fields["held back"] = f"{status.held_back:,}, until {time_text(status.held_until_ms)}"
    if settings["misfire_after_ms"]:
        fields["misfire"] = f"{settings['misfire']} after {duration_text(settings['misfire_after_ms'])}"
    if settings["catch_up_per_s_max"]:
        fields["catch-up rate"] = f"{settings['catch_up_per_s_max']:,} a second"
    if status.misfires_dropped:
        fields["misfires dropped"] = status.misfires_dropped
    for name, text in texts_of(topic.policy).items():
        fields[f"its groups' {name}"] = f"{text} ({topic.set_by[name]})"
    print_fields(fields, output)
    if status.groups:
        print_topics([status])


def _retention(topic: TopicDescription) -> str:
    if not topic.retention_ms:
        return "the cluster's"
    return f"{duration_text(topic.retention_ms)} ({topic.set_by['retention_ms']})"


@cluster_command(topic_app, "delete")
def delete_topic(topic: Topic, yes: Yes = False, *, cluster: OnCluster) -> None:
    """Delete a topic with everything in it, and the schedules that send to it."""
    if not yes:
        typer.confirm(f"Delete topic {topic} and all its messages?", abort=True, err=True)

    async def work(client: Client) -> None:
        gone = await client.operator().delete_topic(topic)
        print_fields({"topic": topic, "deleted": True, **asdict(gone)}, cluster.output)

    cluster.run(work)


@cluster_command(topic_app, "purge", epilog=bulk.EXIT_CODES)
async def purge_topic(
    client: Client,
    topic: Topic,
    yes: Yes = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    resume: Annotated[str, typer.Option(metavar="CURSOR", help="Go on with one that was paused.")] = "",
    *,
    cluster: OnCluster,
) -> None:
    """Cancel all of a topic that no consumer has been given: pending, ready and retries. The topic stays."""
    operator = client.operator()
    if dry_run or not (yes or resume):
        count = await bulk.counted(operator.purge_topic(topic, dry_run=True), topic)
        if dry_run:
            bulk.show(count, topic, cluster.output, purge=True)
            return
        typer.confirm(f"Cancel {count.matched:,} messages, all of topic {topic}?", abort=True, err=True)
    await bulk.cancelled(operator.purge_topic(topic, cursor=resume), topic, cluster.output, purge=True)


async def redrive(
    client: Client,
    topic: Annotated[
        str, typer.Argument(help="The dead-letter topic: dlq.GROUP.TOPIC, or as policies name it.")
    ],
    reason: Annotated[str, typer.Option(help="Only letters with this reason: NACKED or LEASE_EXPIRED.")] = "",
    tag: Annotated[list[str] | None, typer.Option(help="Only letters with any of these.")] = None,
    most: Annotated[int, typer.Option("--max", min=0, help="Give back so many.", show_default="all")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    *,
    cluster: OnCluster,
) -> None:
    """Return dead letters to the groups that gave them up."""
    with words().status("redriving") as spinner:

        def show(progress: Redriven) -> None:
            spinner.update(f"redriving: {progress.redriven:,} of {progress.looked_at:,} looked at")

        done = await client.operator().redrive(
            topic, reason=reason, tags=tag or (), messages_max=most, dry_run=dry_run, on_progress=show
        )
    print_fields({"topic": topic, **asdict(done), "dry_run": dry_run}, cluster.output)
