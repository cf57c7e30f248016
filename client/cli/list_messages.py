"""``tarry list``: what waits on a topic, without taking any of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.markup import escape

from tarry.client.aio import Client, ListedMessage, ListedState
from tarry.client.cli.matching import Filter
from tarry.client.cli.options import OnCluster
from tarry.client.cli.output import Output, body_fields, fields_of, out, print_json, table_of, words
from tarry.client.cli.times import time_text
from tarry.client.errors import TarryError
from tarry.client.queries.listing import PAGE_MAX, ListOptions

FIELDS = ("born_ms", "stored_ms", "due_ms", "state", "group", "attempt", "reason", "offset",
          "released_ms", "damaged", "tags", "keys", "ordering_key", "idempotency_key", "properties",
          "body_bytes")  # fmt: skip
"""Of a message, as JSON shows it before the body."""
LOOKED = "due", "id", "state"
NOTED = "group", "attempt", "reason", "tags", "keys", "ordering_key", "idempotency_key", "properties"
"""Columns that a table has where some message has such a thing."""


async def list_messages(
    client: Client,
    topic: Annotated[str, typer.Argument(help="The topic, or dlq.GROUP.TOPIC for a group's dead letters.")],
    state: Annotated[
        list[ListedState] | None,
        typer.Option(help="Only such messages; may be repeated.", show_default="all but settled"),
    ] = None,
    group: Annotated[
        str,
        typer.Option("--group", "-g", help="Tell what released messages are to it; only its retries."),
    ] = "",
    limit: Annotated[int, typer.Option(min=1, help="At most so many messages.")] = 100,
    bodies: Annotated[bool, typer.Option("--bodies", help="With the messages' bodies.")] = False,
    cursor: Annotated[str, typer.Option(help="Go on where a list ended that said so.")] = "",
    *,
    matching: Filter,
    cluster: OnCluster,
) -> None:
    """List a topic's messages; none is taken, and none changes.

    First what waits for its due time (pending) or its next delivery (retrying), by due time; then what was
    due (released). With a group, the latter is waiting (no consumer has it), in_hand, or settled.
    """
    only: ListOptions = {**matching.only, "states": state or (), "group": group, "bodies": bodies}
    query, shown, begun, failed = client.query(), list[ListedMessage](), cursor, None
    with words().status(f"looking at {escape(topic)}") as looking:
        while len(shown) < limit:
            size = min(PAGE_MAX, limit - len(shown))
            try:
                page = await query.list_page(topic, size=size, cursor=cursor, **only)
            except TarryError as error:
                if cursor == begun:
                    raise
                failed = error
                break
            shown += page.messages
            cursor = page.cursor
            if cluster.output is Output.JSON:
                for message in page.messages:
                    print_json(_for_programs(topic, message))
            if not cursor:
                break
            if page.looked_to_ms:
                looking.update(f"{len(shown):,} found of what is due before {time_text(page.looked_to_ms)}")
    if cluster.output is Output.TABLE:
        if shown:
            out().print(table_of([_for_people(each) for each in shown], _columns(shown)))
        words().print(f"{len(shown):,} messages")
    if cursor:
        _print_more(cursor, cluster.output)
    if failed is not None:
        raise failed


def _columns(shown: Sequence[ListedMessage]) -> list[str]:
    noted = [name for name in NOTED if any(getattr(each, name) for each in shown)]
    bodies = [name for name in ("body", "body_base64") if any(name in _body(each) for each in shown)]
    return [*LOOKED, *noted, "bytes", *bodies]


def _for_people(message: ListedMessage) -> dict[str, object]:
    state = f"{message.state} (damaged)" if message.damaged else str(message.state)
    return {
        "due": time_text(message.due_ms),
        "id": message.id,
        "state": state,
        **{name: getattr(message, name) or "" for name in NOTED},
        "bytes": message.body_bytes,
        **_body(message),
    }


def _for_programs(topic: str, message: ListedMessage) -> dict[str, object]:
    return {"id": message.id, "topic": topic, **fields_of(message, *FIELDS), **_body(message)}


def _body(message: ListedMessage) -> dict[str, Any]:
    return {} if message.body is None else body_fields(message.body)


def _print_more(cursor: str, output: Output) -> None:
    """Say on stderr how to go on."""
    if output is Output.JSON:
        sys.stderr.write(json.dumps({"cursor": cursor}) + "\n")
    else:
        words().print(f"there may be more: the same command with --cursor {cursor}", soft_wrap=True)
