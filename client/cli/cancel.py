"""``tarry cancel``: messages by their ids, or all that match."""

from __future__ import annotations

from typing import Annotated

import typer

from tarry.client.aio import Client
from tarry.client.cli import bulk
from tarry.client.cli.matching import PANEL, Filter
from tarry.client.cli.options import OnCluster
from tarry.client.cli.output import Output, print_outcomes
from tarry.client.queries.matching import Matching
from tarry.client.results import CancelOutcome

EPILOG = "Exit code 1 also where a message named by its id was not cancelled. " + bulk.EXIT_CODES


async def cancel(
    client: Client,
    message_ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID...", help="As schedule printed them.")
    ] = None,
    remaining_groups: Annotated[
        bool,
        typer.Option("--remaining-groups", help="Where groups have had a message, cancel it for the others."),
    ] = False,
    topic: Annotated[
        str, typer.Option(help="Cancel this topic's pending messages that match.", rich_help_panel=PANEL)
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.", rich_help_panel=PANEL)] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.", rich_help_panel=PANEL)] = False,
    resume: Annotated[
        str,
        typer.Option(metavar="CURSOR", help="Go on with one that was paused.", rich_help_panel=PANEL),
    ] = "",
    *,
    matching: Filter,
    cluster: OnCluster,
) -> None:
    """Cancel messages until a consumer is given them: by their ids, or with --topic all pending that match.

    Outcomes: cancelled, already_cancelled, already_delivered (a consumer has it, or has had it), already_done
    (every group is done with it), not_found.
    """
    only = matching.only
    if topic or only or dry_run or resume:
        if message_ids or remaining_groups or not topic:
            raise typer.BadParameter("give ids, or --topic and what the messages have in common")
        await _matching(client, topic, only, cluster.output, dry_run=dry_run, yes=yes, resume=resume)
        return
    if not message_ids:
        raise typer.BadParameter("give ids, or --topic and what the messages have in common")
    outcomes = await client.producer().cancel_many(message_ids, remaining_groups=remaining_groups)
    print_outcomes("id", zip(message_ids, outcomes, strict=True), CancelOutcome.CANCELLED, cluster.output)


async def _matching(
    client: Client, topic: str, only: Matching, output: Output, *, dry_run: bool, yes: bool, resume: str
) -> None:
    query = client.query()
    if dry_run or not (yes or resume):
        count = await bulk.counted(query.cancel_matching(topic, dry_run=True, **only), topic)
        if dry_run:
            bulk.show(count, topic, output, purge=False)
            return
        typer.confirm(f"Cancel {count.matched:,} messages of topic {topic}?", abort=True, err=True)
    steps = query.cancel_matching(topic, cursor=resume, **only)
    await bulk.cancelled(steps, topic, output, purge=False)
