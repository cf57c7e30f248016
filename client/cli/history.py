"""``tarry history``: what became of one message, and why nobody has got it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated, Final

import typer
from rich.status import Status

from tarry.client.aio import Client
from tarry.client.cli.options import OnCluster
from tarry.client.cli.output import Output, cell, out, print_fields, print_json, table_of, words
from tarry.client.cli.times import time_option, time_text
from tarry.client.errors import NotFound, Unavailable
from tarry.client.queries.life import (
    GroupState,
    HistoryRow,
    MessageHistory,
    MessageInGroup,
    MessageLife,
)
from tarry.proto.ledger.fires import fire_in

ROW_COLUMNS: Final = (
    "time", "what", "group", "consumer", "attempt", "due", "detail", "term", "index", "nodes",
)  # fmt: skip
GROUP_COLUMNS: Final = ("group", "state", "attempt", "consumer", "until", "before", "consumers", "why")
NO_ANSWER: Final = "NODES_SILENT"


async def history(
    client: Client,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="As schedule printed it.")],
    from_: Annotated[int | None, time_option("--from", help="Only what happened then or later.")] = None,
    until: Annotated[int | None, time_option("--until", help="Only what happened before.")] = None,
    *,
    cluster: OnCluster,
) -> None:
    """Show what has happened to a message, and what it is to each group now, and why nobody has it.

    The first half is from the ledgers of all nodes, the second from the leader. A node that does not answer
    is named; the exit code is then 3, and deliveries while it led may be missing.
    """
    query = client.query()
    life: MessageLife | None = None
    try:
        life = await query.life(message_id)
    except NotFound as error:
        gone = error  # the ledgers may know of it for longer
    with words().status("asking all nodes") as spinner:
        told = await query.history(
            life.id if life is not None else message_id,
            from_ms=from_ or 0,
            until_ms=until or 0,
            timeout_ms=cluster.deadline_ms,
            progress=_Spinner(spinner).show,
        )
    if life is None and not told.rows:
        raise gone
    if cluster.output is Output.JSON:
        print_json(_plain(life, told))
    else:
        _print(life, told)
    silent = [node for node in told.nodes if node.error]
    if silent:
        raise Unavailable(
            NO_ANSWER,
            "deliveries while these nodes led may be missing: "
            + ", ".join(f"{node.address} ({node.error})" for node in silent),
        )


class _Spinner:
    """Shows how much the nodes have looked through."""

    def __init__(self, spinner: Status) -> None:
        self._spinner = spinner
        self._rows: dict[str, tuple[int, int]] = {}

    def show(self, address: str, looked: int, left: int) -> None:
        """Take the place of the text shown."""
        self._rows[address] = looked, left
        done, all_left = (sum(column) for column in zip(*self._rows.values(), strict=True))
        if sys.stderr.isatty():
            self._spinner.update(f"looked through {done:,} rows of ledgers; {all_left:,} are left at most")


def _print(life: MessageLife | None, told: MessageHistory) -> None:
    if life is not None:
        released = None if life.released_ms is None else time_text(life.released_ms)
        fields = {
            "id": life.id,
            "topic": life.topic,
            "state": life.state.value,
            "due": time_text(life.due_ms),
            "released": released,
            "offset": life.offset,
        }
        if life.queue_topic != life.topic:
            fields["misfired to"] = life.queue_topic
        print_fields({name: value for name, value in fields.items() if value is not None}, Output.TABLE)
    out().print(table_of([_row(row) for row in told.rows], ROW_COLUMNS, "what has happened"))
    if life is not None:
        rows = [_group(one, told.end_in(one.group)) for one in life.groups]
        if rows:
            out().print(table_of(rows, GROUP_COLUMNS, f"now, at {time_text(life.now_ms)}"))
        else:
            out().print(f"now: no group consumes {cell(life.queue_topic)}, so nobody is to get it")
        if life.groups_left_out:
            words().print(f"{life.groups_left_out} more groups are not shown", style="dim")
    for node in told.nodes:
        for text in node.doubts():
            words().print(f"{node.node or node.address}: {cell(text)}", style="yellow")


def _row(row: HistoryRow) -> dict[str, object]:
    marked = ["maybe a duplicate"] if row.maybe_duplicate else []
    moved = row.kind in ("scheduled", "retried", "rescheduled") and row.due_ms is not None
    return {
        "time": time_text(row.at_ms),
        "what": row.kind,
        "group": row.group,
        "consumer": row.consumer,
        "attempt": row.attempt,
        "due": time_text(row.due_ms) if moved and row.due_ms is not None else "",
        "detail": ", ".join([*filter(None, [detail_text(row)]), *marked]),
        "term": row.term,
        "index": row.index,
        "nodes": row.sources,
    }


def detail_text(row: HistoryRow) -> str:
    """Return the detail of a row in words: of a message that a schedule has made, which fire it is of."""
    fire = fire_in(row.detail) if row.kind == "scheduled" else None
    if fire is None:
        return row.detail.lower()
    if fire.fire_ms is None:
        return f"schedule {fire.name} was triggered"
    return f"fire {time_text(fire.fire_ms)} of schedule {fire.name}"


def _group(one: MessageInGroup, end: HistoryRow | None) -> dict[str, object]:
    why = one.why
    if one.state in (GroupState.DONE, GroupState.GONE, GroupState.CANCELLED) and end is not None:
        why = f"{end.kind} at {time_text(end.at_ms)}"
        if end.kind == "dead":
            why += f"; dead letters go to {one.dead_letter_topic}" if one.dead_letter_topic else "; dropped"
    return {
        "group": one.group,
        "state": one.state.value,
        "attempt": one.attempt or "",
        "consumer": one.consumer,
        "until": time_text(one.until_ms) if one.until_ms else "",
        "before": one.before,
        "consumers": one.consumers,
        "why": why,
    }


def _plain(life: MessageLife | None, told: MessageHistory) -> dict[str, object]:
    return {
        "life": None if life is None else asdict(life),
        "history": [asdict(row) for row in told.rows],
        "complete": told.complete,
        "nodes": [asdict(node) for node in told.nodes],
    }
