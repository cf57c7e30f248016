"""``tarry cluster``: settings for all topics and groups that say nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, cast

import typer

from tarry.client.aio import Client
from tarry.client.cli.options import OnCluster, cluster_command
from tarry.client.cli.output import Output, print_json, print_rows
from tarry.client.cli.policies import PolicyFlags, json_of, texts_of
from tarry.client.cli.times import duration_option, duration_text, parse_duration_ms
from tarry.client.durability import Durability
from tarry.client.operators.cluster_settings import FIELDS, ClusterDescription, ClusterOptions

cluster_app = typer.Typer(
    no_args_is_help=True, help="Show and change settings for all topics and groups that say nothing else."
)
COLUMNS = ("setting", "value", "set_by")


def _delays(text: str) -> tuple[int, ...]:
    return tuple(parse_duration_ms(part) for part in text.split(","))


@dataclass(frozen=True, slots=True)
class ClusterFlags:
    """The options beside a policy's; None: not given."""

    retention_ms: Annotated[
        int | None, duration_option("--retention", help="How long released messages are kept at least.")
    ] = None
    group_expiry_ms: Annotated[
        int | None,
        duration_option(
            "--group-expiry", help="Without use, groups that consumers made are deleted after it; 0s: never."
        ),
    ] = None
    temporary_group_ms: Annotated[
        int | None,
        duration_option("--temporary-group", help="How long a temporary group waits for its consumer."),
    ] = None
    idempotency_window_ms: Annotated[
        int | None,
        duration_option(
            "--idempotency-window", help="How long behind a message's release its idempotency key counts."
        ),
    ] = None
    delay_levels_ms: Annotated[
        Any,
        typer.Option(
            "--delay-levels", parser=_delays, metavar="DELAYS", help="What levels 1, 2, ... mean: 1s,5s,10s."
        ),
    ] = None

    durability: Annotated[
        Durability | None,
        typer.Option(help="Answer once a majority has flushed a change (sync), or written it (async)."),
    ] = None
    flush_ms: Annotated[
        int | None,
        duration_option("--flush", help="With async durability, each node flushes within it."),
    ] = None

    def given(self) -> dict[str, Any]:
        """Return the settings that were given."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in given.items() if value is not None}


@cluster_command(cluster_app, "show")
async def show(client: Client, *, cluster: OnCluster) -> None:
    """Show each setting, and who sets it: the cluster, or nobody, and the built-in default counts.

    Before the cluster's level is 2 the leader's configuration counts (node).
    """
    _show(await client.operator().describe_cluster(), cluster.output)


@cluster_command(cluster_app, "set")
async def set_settings(
    client: Client, *, settings: ClusterFlags, policy: PolicyFlags, cluster: OnCluster
) -> None:
    """Change settings; what is not given stays. They count at once, and under every leader."""
    given: Mapping[str, Any] = settings.given() | dict(policy.given())
    if not given:
        raise typer.BadParameter("give something to set")
    _show(await client.operator().set_cluster(**cast(ClusterOptions, given)), cluster.output)


@cluster_command(cluster_app, "durability")
async def set_durability(
    client: Client,
    durability: Annotated[Durability, typer.Argument(help="sync or async.")],
    *,
    flush_ms: Annotated[
        int | None,
        duration_option("--flush", help="With async: each node flushes within it; 200ms by default."),
    ] = None,
    cluster: OnCluster,
) -> None:
    """Answer once a majority of the nodes has flushed a change to disk (sync), or only written it (async).

    With async, killed processes lose nothing. A machine that lost its power comes back as a newcomer; if a
    majority of them loses it at once, what was acknowledged within --flush before is lost. The answer comes
    once it counts: after sync, nothing that was acknowledged can be lost any more.
    """
    given: dict[str, Any] = {"durability": durability}
    if flush_ms is not None:
        given["flush_ms"] = flush_ms
    _show(await client.operator().set_cluster(**cast(ClusterOptions, given)), cluster.output)


@cluster_command(cluster_app, "unset")
async def unset_settings(
    client: Client,
    names: Annotated[list[str], typer.Argument(metavar="FIELD...", help=f"Settings: {', '.join(FIELDS)}.")],
    *,
    cluster: OnCluster,
) -> None:
    """Set settings no more: their built-in defaults count."""
    _show(await client.operator().set_cluster(unset=names), cluster.output)


def _show(found: ClusterDescription, output: Output) -> None:
    if output is Output.JSON:
        settings = {"settings": json_of(found.settings), "own": json_of(found.own)}
        print_json(settings | {"set_by": dict(found.set_by)})
        return
    texts = texts_of(found.settings)
    delays = found.settings["delay_levels_ms"]
    texts["delay_levels_ms"] = ",".join(map(duration_text, delays))
    if not found.settings["group_expiry_ms"]:
        texts["group_expiry_ms"] = "never"
    names = [name for name in FIELDS if name in found.set_by]  # nodes of other versions lack some
    rows = [{"setting": name, "value": texts[name], "set_by": found.set_by[name]} for name in names]
    print_rows(rows, COLUMNS)
