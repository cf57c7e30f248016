"""``tarry reschedule`` and ``tarry update``: changes of what is pending."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tarry.client.aio import Change, ChangeOutcome, Client
from tarry.client.cli.options import OnCluster
from tarry.client.cli.output import REFUSED, Output, print_rows
from tarry.client.cli.schedule import content_of, property_of
from tarry.client.cli.times import duration_option, time_option, time_text

DONE = (ChangeOutcome.CHANGED, ChangeOutcome.ALREADY_SO)
IfDue = Annotated[
    int | None, time_option("--if-due", help="Only what is due then, as get shows it, else due_differs.")
]
Group = Annotated[
    str, typer.Option(metavar="GROUP", help="It waits for its retry in this group: change the retry.")
]
Topic = Annotated[str, typer.Option(help="With --group, where only the retry is kept: the message's topic.")]


async def reschedule(
    client: Client,
    message_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="As schedule printed them.")],
    delay_ms: Annotated[
        int | None, duration_option("--delay", help="From now: 250ms, 10s, 1m30s, 2h, 7d.")
    ] = None,
    due_ms: Annotated[
        int | None,
        time_option("--due", help="ISO 8601 (UTC unless it says otherwise), or ms since the epoch."),
    ] = None,
    if_due_ms: IfDue = None,
    group: Group = "",
    topic: Topic = "",
    *,
    cluster: OnCluster,
) -> None:
    """Have pending messages due at another time: give --delay or --due. Their ids stay valid.

    Outcomes: changed, already_so, due_differs, already_released (with --group: it waits for no retry there),
    already_cancelled, not_found.
    """
    if (due_ms is None) == (delay_ms is None):
        raise typer.BadParameter("give exactly one of --delay and --due")
    changes = await client.producer().reschedule_many(
        message_ids, due_ms=due_ms, delay_ms=delay_ms, if_due_ms=if_due_ms, group=group, topic=topic
    )
    print_changes(changes, cluster.output)


async def update(
    client: Client,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="As schedule printed it.")],
    body: Annotated[str | None, typer.Argument(help="The new message; - reads it from stdin.")] = None,
    file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Read the body from a file.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="In place of its tags; may be repeated.")] = None,
    no_tags: Annotated[bool, typer.Option("--no-tags", help="Without tags.")] = False,
    key_: Annotated[
        list[str] | None, typer.Option("--key", help="In place of its keys; may be repeated.")
    ] = None,
    no_keys: Annotated[bool, typer.Option("--no-keys", help="Without keys.")] = False,
    property_: Annotated[
        list[str] | None,
        typer.Option(
            "--property", "-p", metavar="NAME=VALUE", help="In place of its properties; may be repeated."
        ),
    ] = None,
    no_properties: Annotated[bool, typer.Option("--no-properties", help="Without properties.")] = False,
    if_due_ms: IfDue = None,
    group: Group = "",
    topic: Topic = "",
    *,
    cluster: OnCluster,
) -> None:
    """Replace parts of a pending message, and leave the others as they are.

    Outcomes: as of reschedule.
    """
    for given, none, name in (
        (tag, no_tags, "--no-tags"),
        (key_, no_keys, "--no-keys"),
        (property_, no_properties, "--no-properties"),
    ):
        if given and none:
            raise typer.BadParameter("give new ones or none, not both", param_hint=name)
    replaced = body is not None or file is not None
    if not (replaced or tag or no_tags or key_ or no_keys or property_ or no_properties):
        raise typer.BadParameter("give a body, --file, --tag, --key or --property")
    change = await client.producer().update(
        message_id,
        body=content_of(body or "", file) if replaced else None,
        tags=tag or ([] if no_tags else None),
        keys=key_ or ([] if no_keys else None),
        properties=dict(map(property_of, property_)) if property_ else {} if no_properties else None,
        if_due_ms=if_due_ms,
        group=group,
        topic=topic,
    )
    print_changes([change], cluster.output)


def print_changes(changes: list[Change], output: Output) -> None:
    """Print what has come of each message; exit with REFUSED where one is not as it was to be."""
    rows = [
        {
            "id": change.id,
            "outcome": change.outcome.value,
            **(
                {"due_ms": change.due_ms}
                if output is Output.JSON
                else {"due": "" if change.due_ms is None else time_text(change.due_ms)}
            ),
        }
        for change in changes
    ]
    print_rows(rows, ["id", "outcome", "due"], output)
    if any(change.outcome not in DONE for change in changes):
        raise typer.Exit(REFUSED)
