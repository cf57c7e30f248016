"""``tarry topic create`` and ``tarry topic set``: a topic's settings."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, cast

import typer

from tarry.client.aio import Client
from tarry.client.console_operator import print_topics
from tarry.client.console_options import EXIT_CODES, OnCluster, on_cluster
from tarry.client.console_output import Output, print_fields, print_json
from tarry.client.console_times import duration_text, parse_duration_ms, time_text
from tarry.client.operator import TopicDescription
from tarry.client.topic_settings import Misfire, TopicOptions

topic_app = typer.Typer(no_args_is_help=True, help="Make, change, show and delete topics.")

Topic = Annotated[str, typer.Argument(help="The topic.")]
Retention = Annotated[
    int | None,
    typer.Option(
        "--retention",
        parser=parse_duration_ms,
        metavar="DURATION",
        help="How long released messages are kept at least; 0s: the cluster's default.",
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
    int | None,
    typer.Option(
        "--misfire-after",
        parser=parse_duration_ms,
        metavar="DURATION",
        help="From how late on a message has misfired.",
    ),
]
CatchUp = Annotated[
    int | None, typer.Option("--catch-up-rate", min=0, help="Misfired messages a second, for catch-up.")
]


def _given(**options: Any) -> TopicOptions:
    return cast(TopicOptions, {name: value for name, value in options.items() if value is not None})


@topic_app.command("create", epilog=EXIT_CODES)
@on_cluster()
def create_topic(
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
    """Make a topic. One that is there gets these settings, and the defaults for all others."""
    options = _given(
        retention_ms=retention_ms,
        body_bytes_max=body_bytes_max,
        release_per_s_max=release_per_s_max,
        pending_max=pending_max,
        misfire=misfire,
        misfire_after_ms=misfire_after_ms,
        catch_up_per_s_max=catch_up_per_s_max,
    )

    async def work(client: Client) -> None:
        show(await client.operator().create_topic(topic, **options), cluster.output)

    cluster.run(work)


@topic_app.command("set", epilog=EXIT_CODES)
@on_cluster()
def set_topic(
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
    """Change settings of a topic; what is not given stays. Another rate counts at once."""
    options = _given(
        retention_ms=retention_ms,
        body_bytes_max=body_bytes_max,
        release_per_s_max=release_per_s_max,
        pending_max=pending_max,
        misfire=misfire,
        misfire_after_ms=misfire_after_ms,
        catch_up_per_s_max=catch_up_per_s_max,
    )

    async def work(client: Client) -> None:
        show(await client.operator().change_topic(topic, **options), cluster.output)

    cluster.run(work)


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
