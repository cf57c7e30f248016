"""``tarry find``: a topic's messages that have a key."""

from __future__ import annotations

from typing import Annotated

import typer

from tarry.client.aio import Client
from tarry.client.cli.options import OnCluster
from tarry.client.cli.output import Output, body_fields, fields_of, print_rows, words
from tarry.client.cli.times import time_option, time_text
from tarry.client.found import FoundMessage
from tarry.client.results import MessageState

PAGE = 1_000
STATES = [MessageState.PENDING, MessageState.RELEASED, MessageState.CANCELLED]


async def find(
    client: Client,
    topic: Annotated[str, typer.Argument(help="The topic that the messages are of.")],
    key_: Annotated[str, typer.Argument(metavar="[KEY]", help="One of their keys, whole.")] = "",
    idempotency_key: Annotated[
        str, typer.Option(metavar="KEY", help="Find what was scheduled with it; instead of a key.")
    ] = "",
    due_from_ms: Annotated[
        int | None, time_option("--due-from", help="Only what is due then or later.")
    ] = None,
    due_to_ms: Annotated[int | None, time_option("--due-to", help="Only what is due before.")] = None,
    stored_from_ms: Annotated[
        int | None, time_option("--stored-from", help="Only what the cluster took then or later.")
    ] = None,
    stored_to_ms: Annotated[
        int | None, time_option("--stored-to", help="Only what the cluster took before.")
    ] = None,
    born_from_ms: Annotated[
        int | None, time_option("--born-from", help="Only what was sent then or later, by producers' clocks.")
    ] = None,
    born_to_ms: Annotated[int | None, time_option("--born-to", help="Only what was sent before.")] = None,
    state: Annotated[
        list[MessageState] | None,
        typer.Option(
            help="Only messages in this state: pending, released, cancelled; may be repeated.",
            metavar="STATE",
        ),
    ] = None,
    most: Annotated[int, typer.Option("--max", min=1, help="Show so many.")] = 1_000,
    bodies: Annotated[
        bool, typer.Option("--bodies", help="With bodies; needs the right to produce or consume.")
    ] = False,
    *,
    cluster: OnCluster,
) -> None:
    """Find messages by a key or an idempotency key: what is pending, and what was released and is still kept.

    They come by the hour in which they are due, those of an hour as they were scheduled.
    """
    if set(state or ()) - set(STATES):
        raise typer.BadParameter("use pending, released or cancelled", param_hint="--state")
    if bool(key_) == bool(idempotency_key):
        raise typer.BadParameter("give either KEY or --idempotency-key")
    found: list[FoundMessage] = []
    unreadable, begin, query = 0, "", client.query()
    with words().status("looking for messages") as spinner:
        while True:
            page = await query.find(
                topic,
                key_,
                idempotency_key=idempotency_key,
                due_from_ms=due_from_ms or 0,
                due_to_ms=due_to_ms or 0,
                stored_from_ms=stored_from_ms or 0,
                stored_to_ms=stored_to_ms or 0,
                born_from_ms=born_from_ms or 0,
                born_to_ms=born_to_ms or 0,
                states=state or (),
                limit=min(PAGE, most - len(found)),
                bodies=bodies,
                begin=begin,
            )
            found += page.messages
            unreadable, begin = unreadable + page.unreadable, page.next
            spinner.update(f"looking for messages: {len(found):,} found")
            if not begin or len(found) >= most:
                break
    rows = [_row(message, for_programs=cluster.output is Output.JSON) for message in found]
    print_rows(rows, ["id", "due", "stored", "state", *(["body"] if bodies else [])], cluster.output)
    if begin:
        words().print(f"there may be more: give a greater --max than {most}", style="dim")
    if unreadable:
        words().print(f"{unreadable:,} more may have the key: their records are damaged, and being mended")


def _row(message: FoundMessage, *, for_programs: bool) -> dict[str, object]:
    when: dict[str, object] = {"due": time_text(message.due_ms)}
    if for_programs:
        when = fields_of(message, "born_ms", "stored_ms", "due_ms")
    else:
        when["stored"] = "" if message.stored_ms is None else time_text(message.stored_ms)
    row = {"id": message.id, **when, "state": message.state.value}
    if message.body is None:
        return row
    body = body_fields(message.body)
    if not for_programs:
        return {**row, "body": next(iter(body.values()))}
    content = fields_of(message, "tags", "keys", "ordering_key", "idempotency_key", "properties")
    return {**row, **content, **body}
