"""Progress of a cancel of many messages on the command line: a bar, a pause by Ctrl-C, and how to go on."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import asdict
from typing import Final

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from tarry.client.cli.output import Output, print_fields, words
from tarry.client.errors import TarryError
from tarry.client.queries.bulk_cancel import BulkCancel

PAUSED: Final = 130
"""Exit code after Ctrl-C, as of any program that it ends."""
EXIT_CODES: Final = (
    "Exit codes: 0 done, 1 refused by the cluster, 2 wrong usage, 3 no answer from the cluster, "
    f"{PAUSED} paused by Ctrl-C."
)
_OF_A_PURGE: Final = ("ready", "retries", "in_hand")


async def counted(steps: AsyncGenerator[BulkCancel], what: str) -> BulkCancel:
    """Return what a dry run comes to, showing how far it is."""
    return await _followed(steps, f"counting {what}", asyncio.Event())


async def cancelled(steps: AsyncGenerator[BulkCancel], what: str, output: Output, *, purge: bool) -> None:
    """Cancel until all is done, and print the counts; Ctrl-C pauses. Exits with PAUSED then."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError):  # on Windows Ctrl-C ends it at once
        loop.add_signal_handler(signal.SIGINT, stop.set)
    try:
        last = await _followed(steps, f"cancelling {what}", stop)
    finally:
        with suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)
    show(last, what, output, purge=purge)
    if not last.done:
        _how_to_go_on(last)
        raise typer.Exit(PAUSED)


def show(last: BulkCancel, what: str, output: Output, *, purge: bool) -> None:
    """Print the counts."""
    fields = {"topic": what, **asdict(last)}
    for name in [] if purge else _OF_A_PURGE:
        del fields[name]
    if last.done:
        del fields["cursor"]
    if output is Output.TABLE:  # the bar has shown these
        for name in ("cursor", "looked_at", "total"):
            fields.pop(name, None)
    print_fields(fields, output)


async def _followed(steps: AsyncGenerator[BulkCancel], what: str, stop: asyncio.Event) -> BulkCancel:
    last = None
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[n]:,}"),
    )
    try:
        with Progress(*columns, console=words(), transient=True) as shown:
            task = shown.add_task(what, total=None, n=0)
            async with aclosing(steps):
                async for last in steps:
                    at = min(last.looked_at, last.total) if not last.done else last.total
                    shown.update(task, total=max(last.total, 1), completed=at or last.done, n=last.matched)
                    if stop.is_set():
                        break
    except TarryError:
        if last is not None:
            _how_to_go_on(last)
        raise
    assert last is not None
    return last


def _how_to_go_on(last: BulkCancel) -> None:
    words().print("not finished; give the same command again, with", style="yellow")
    words().out(f"--resume {last.cursor}", highlight=False)
