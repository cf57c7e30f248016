"""``tarry cancel``: messages by their ids, or all that match."""

from __future__ import annotations

from typing import Annotated

import typer

from tarry.client.aio import Client
from tarry.client.cli import bulk
from tarry.client.cli.matching import PANEL, Filter
from tarry.client.cli.options import OnCluster
from tarry.client.cli.output import REFUSED, Output, print_outcomes, print_rows, words
from tarry.client.errors import NotFound
from tarry.client.queries.matching import Matching
from tarry.client.results import CancelOutcome, MessageState
from tarry.proto.reasons import Reason

EPILOG = (
    "Exit code 1 also where a message named by its id was not cancelled, or none with the idempotency key. "
    + bulk.EXIT_CODES
)


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
    idempotency_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="With --topic: what was scheduled with it, released too, as by its ids.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Only count; with --idempotency-key, only tell the ids.", rich_help_panel=PANEL
        ),
    ] = False,
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

    With --topic and --idempotency-key: what was scheduled with that key, pending or released.

    Outcomes: cancelled, already_cancelled, already_delivered (a consumer has it, or has had it), already_done
    (every group is done with it), not_found.
    """
    only = matching.only
    if idempotency_key is not None:
        if message_ids or not topic or resume or only.keys() - {"due_from_ms", "due_to_ms"}:
            raise typer.BadParameter("goes with --topic and due times only", param_hint="--idempotency-key")
        ids, unreadable = await _having(client, topic, idempotency_key, only)
        if unreadable:
            words().print(
                f"{unreadable:,} more may have the key: their records are damaged, and being mended"
            )
        await _each(client, ids, idempotency_key, cluster.output, remaining_groups, dry_run=dry_run)
        if unreadable:
            raise typer.Exit(REFUSED)
        return
    if topic or only or dry_run or resume:
        if message_ids or remaining_groups or not topic:
            raise typer.BadParameter("give ids, or --topic and what the messages have in common")
        await _matching(client, topic, only, cluster.output, dry_run=dry_run, yes=yes, resume=resume)
        return
    if not message_ids:
        raise typer.BadParameter("give ids, or --topic and what the messages have in common")
    outcomes = await client.producer().cancel_many(message_ids, remaining_groups=remaining_groups)
    print_outcomes("id", zip(message_ids, outcomes, strict=True), CancelOutcome.CANCELLED, cluster.output)


async def _having(client: Client, topic: str, idempotency_key: str, only: Matching) -> tuple[list[str], int]:
    """Return the ids of what has the key and may be cancelled, and how many more are damaged.

    Raises typer.BadParameter.
    """
    if not idempotency_key:  # as of a variable of the shell that is not set
        raise typer.BadParameter("must not be empty", param_hint="--idempotency-key")
    ids, unreadable, begin, query = list[str](), 0, "", client.query()
    while True:
        page = await query.find(
            topic,
            idempotency_key=idempotency_key,
            due_from_ms=only.get("due_from_ms", 0),
            due_to_ms=only.get("due_to_ms", 0),
            states=(MessageState.PENDING, MessageState.RELEASED),
            begin=begin,
        )
        ids += [message.id for message in page.messages]
        unreadable += page.unreadable
        if not (begin := page.next):
            return ids, unreadable


async def _each(
    client: Client,
    ids: list[str],
    idempotency_key: str,
    output: Output,
    remaining_groups: bool,
    *,
    dry_run: bool,
) -> None:
    """Cancel what has the key. Of several messages the earlier ones are done with, which is no failure."""
    if dry_run:
        print_rows([{"id": each} for each in ids], ["id"], output)
        return
    if not ids:
        text = (
            f"no message that is pending or released has the idempotency key {idempotency_key!r}: "
            "tarry find shows those that were cancelled, too"
        )
        raise NotFound(Reason.MESSAGE_NOT_FOUND, text)
    outcomes = await client.producer().cancel_many(ids, remaining_groups=remaining_groups)
    rows = [{"id": each, "outcome": outcome.value} for each, outcome in zip(ids, outcomes, strict=True)]
    print_rows(rows, ["id", "outcome"], output)
    if CancelOutcome.CANCELLED not in outcomes:
        raise typer.Exit(REFUSED)


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
