"""``tarry cancel``: messages by their ids, or all that match."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast

import typer

from tarry.client.aio import Client
from tarry.client.cli import bulk
from tarry.client.cli.options import OnCluster
from tarry.client.cli.output import Output, print_outcomes
from tarry.client.cli.times import time_option
from tarry.client.queries.bulk_cancel import Matching
from tarry.client.results import CancelOutcome

EPILOG = "Exit code 1 also where a message named by its id was not cancelled. " + bulk.EXIT_CODES
_PANEL = "All that match"


@dataclass(frozen=True, slots=True)
class Filter:
    """Options that say which messages match."""

    topic: Annotated[
        str, typer.Option(help="Cancel this topic's pending messages that match.", rich_help_panel=_PANEL)
    ] = ""
    tags: Annotated[
        list[str] | None, typer.Option("--tag", help="Only those with any of these.", rich_help_panel=_PANEL)
    ] = None
    keys: Annotated[
        list[str] | None, typer.Option("--key", help="Only those with any of these.", rich_help_panel=_PANEL)
    ] = None
    key_prefix: Annotated[
        str | None, typer.Option(help="Only those with a key that begins so.", rich_help_panel=_PANEL)
    ] = None
    due_from_ms: Annotated[
        int | None, time_option("--due-from", help="Only those due then or later.", rich_help_panel=_PANEL)
    ] = None
    due_to_ms: Annotated[
        int | None, time_option("--due-to", help="Only those due before.", rich_help_panel=_PANEL)
    ] = None

    @property
    def given(self) -> bool:
        """True where any of them is."""
        return bool(self.topic or self.only)

    @property
    def only(self) -> Matching:
        """The options but for the topic, as far as they are given."""
        values = {
            "tags": self.tags,
            "keys": self.keys,
            "key_prefix": self.key_prefix,
            "due_from_ms": self.due_from_ms,
            "due_to_ms": self.due_to_ms,
        }
        if self.key_prefix == "" or self.due_to_ms == 0:  # as of a variable of the shell that is not set
            raise typer.BadParameter("--key-prefix and --due-to must not be empty: leave them out")
        given = {name: value for name, value in values.items() if value is not None and value != []}
        return cast(Matching, given)


async def cancel(
    client: Client,
    message_ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID...", help="As schedule printed them.")
    ] = None,
    remaining_groups: Annotated[
        bool,
        typer.Option("--remaining-groups", help="Where groups have had a message, cancel it for the others."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.", rich_help_panel=_PANEL)] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.", rich_help_panel=_PANEL)] = False,
    resume: Annotated[
        str,
        typer.Option(metavar="CURSOR", help="Go on with one that was paused.", rich_help_panel=_PANEL),
    ] = "",
    *,
    only: Filter,
    cluster: OnCluster,
) -> None:
    """Cancel messages until a consumer is given them: by their ids, or with --topic all pending that match.

    Outcomes: cancelled, already_cancelled, already_delivered (a consumer has it, or has had it), already_done
    (every group is done with it), not_found.
    """
    if only.given or dry_run or resume:
        if message_ids or remaining_groups or not only.topic:
            raise typer.BadParameter("give ids, or --topic and what the messages have in common")
        await _matching(client, only, cluster.output, dry_run=dry_run, yes=yes, resume=resume)
        return
    if not message_ids:
        raise typer.BadParameter("give ids, or --topic and what the messages have in common")
    outcomes = await client.producer().cancel_many(message_ids, remaining_groups=remaining_groups)
    print_outcomes("id", zip(message_ids, outcomes, strict=True), CancelOutcome.CANCELLED, cluster.output)


async def _matching(
    client: Client, only: Filter, output: Output, *, dry_run: bool, yes: bool, resume: str
) -> None:
    query, topic = client.query(), only.topic
    if dry_run or not (yes or resume):
        count = await bulk.counted(query.cancel_matching(topic, dry_run=True, **only.only), topic)
        if dry_run:
            bulk.show(count, topic, output, purge=False)
            return
        typer.confirm(f"Cancel {count.matched:,} messages of topic {topic}?", abort=True, err=True)
    steps = query.cancel_matching(topic, cursor=resume, **only.only)
    await bulk.cancelled(steps, topic, output, purge=False)
