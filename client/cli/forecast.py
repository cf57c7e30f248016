"""``tarry forecast``: what is due when, and how late it will be, as bars."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from tarry.client.aio import Client
from tarry.client.cli.bars import bars
from tarry.client.cli.options import OnCluster
from tarry.client.cli.output import Output, out, print_json
from tarry.client.cli.times import duration_option, duration_text, time_option, time_text
from tarry.client.queries.forecast import BUCKET_MS, Forecast, ForecastOptions

COUNT_LINES: Final = 8
LATENESS_LINES: Final = 3
"""Heights of the bars."""
COLUMNS_MAX: Final = 120
EVERY_MS_MIN: Final = 200
EVERY: Any = "2s"
"""A text, so that the help shows it as it would be given."""


class By(StrEnum):
    """Lengths of a bucket."""

    SECOND = "second"
    MINUTE = "minute"
    HOUR = "hour"


def forecast(
    topic: Annotated[str, typer.Option(help="Only of this topic; else of all, with groups' retries.")] = "",
    tags: Annotated[
        list[str] | None, typer.Option("--tag", help="Only with this tag; may be repeated: any of them.")
    ] = None,
    by: Annotated[By, typer.Option(help="How long a bucket is.")] = By.SECOND,
    for_ms: Annotated[
        int | None,
        duration_option(
            "--for", help="How far ahead: 1h by second, 1d by minute, else as far as there is any."
        ),
    ] = None,
    from_ms: Annotated[int | None, time_option("--from", help="Where to begin; else now.")] = None,
    at: Annotated[str, typer.Option(metavar="HOST:PORT", help="Ask this node alone.")] = "",
    linearizable: Annotated[
        bool, typer.Option("--linearizable", help="With all that was acknowledged before: ask the leader.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again; Ctrl-C ends it.")] = False,
    every_ms: Annotated[
        int, duration_option("--every", help=f"Time between two looks; at least {EVERY_MS_MIN}ms.")
    ] = EVERY,
    looks: Annotated[
        int | None, typer.Option("--looks", "-n", min=1, help="Watch, and end after so many.")
    ] = None,
    *,
    cluster: OnCluster,
) -> None:
    """Show how many pending messages are due when, what is overdue, and how late what comes will be.

    Counts are exact as of one moment. Lateness is predicted for all topics together, from what the cluster
    has released a second while there was more; until the node has seen that, 50,000 are assumed.

    With -o json each look is a line: counts by bucket from first_ms on, each of bucket_ms.
    """
    if every_ms < EVERY_MS_MIN:
        raise typer.BadParameter(f"--every is at least {EVERY_MS_MIN}ms: a look costs the node some ms")
    options = ForecastOptions(
        topic=topic, tags=tags or (), by=by.value, from_ms=from_ms or 0, linearizable=linearizable
    )
    if for_ms is not None:
        if for_ms <= 0:
            raise typer.BadParameter("--for is longer than 0s")
        options["buckets"] = -(-for_ms // BUCKET_MS[by])
    most = looks if looks is not None else None if watch else 1

    async def work(client: Client) -> None:
        async def look() -> Forecast:
            return await client.query().forecast(address=at, **options)

        await _show(_looks(look, every_ms / 1_000, most), cluster.output, whole=most is None)

    try:
        cluster.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


async def _looks(look: Callable[[], Any], every_s: float, most: int | None) -> AsyncIterator[Forecast]:
    """Yield looks; one that takes longer than the time between two delays those after it."""
    loop = asyncio.get_running_loop()
    next_s = loop.time()
    for count in itertools.count(1):
        yield await look()
        if count == most:
            return
        next_s = max(next_s + every_s, loop.time())
        await asyncio.sleep(next_s - loop.time())


async def _show(looks: AsyncIterator[Forecast], output: Output, *, whole: bool) -> None:
    """Show looks; ``whole``: on the whole of the terminal, if it can."""
    console = out()
    drawn = whole and output is Output.TABLE and console.is_interactive
    with Live(console=console, screen=True, auto_refresh=False) if drawn else nullcontext() as live:
        async for look in looks:
            if output is Output.JSON:
                print_json(asdict(look))
                continue
            shown = view(look, min(COLUMNS_MAX, console.width))
            if live is None:
                console.print(shown)
            else:
                live.update(shown, refresh=True)


def view(look: Forecast, width: int) -> Group:
    """Return a forecast as it is drawn, so many columns wide at most."""
    columns = joined(look.counts, width, sum)
    size = -(-len(look.counts) // width)
    column = duration_text(look.bucket_ms * size)
    most = max(columns, default=0)
    title = f"due from {time_text(look.first_ms)} on: {sum(look.counts):,}; in {column} {most:,} at most"
    lines = [_summary(look), title, *bars(columns, COUNT_LINES), _scale(look, len(columns))]
    if any(look.lateness_ms):
        lines += ["", f"predicted lateness: {duration_text(max(look.lateness_ms))} at most"]
        lines += bars(joined(look.lateness_ms, width, max), LATENESS_LINES)
    return Group(*(Text(line, no_wrap=True, overflow="crop") for line in lines))


def joined(values: Sequence[int], width: int, join: Callable[[Sequence[int]], int]) -> list[int]:
    """Return values, so many together that there are ``width`` at most."""
    size = max(1, -(-len(values) // width))
    return [join(values[start : start + size]) for start in range(0, len(values), size)]


def _summary(look: Forecast) -> str:
    overdue = f"overdue {look.overdue:,}"
    overdue += f", oldest {duration_text(look.oldest_overdue_ms)}" if look.overdue else ""
    measured = "measured" if look.released_measured else "assumed"
    parts = [
        f"{look.pending:,} pending",
        overdue,
        f"backlogs go at {look.released_per_s:,.0f}/s ({measured})",
        f"by {look.node}, {_role(look)}",
    ]
    parts += ["at most: not all records were read for their tags"] if look.upper_bound else []
    return "; ".join(parts)


def _role(look: Forecast) -> str:
    if look.leads:
        return "the leader"
    return (
        f"which heard the leader {look.heard_ms_ago} ms ago" if look.heard_ms_ago else "which knows no leader"
    )


def _scale(look: Forecast, width: int) -> str:
    """Return where the columns begin and end."""
    begin, end = (
        "now" if look.first_ms <= look.now_ms else "",
        "+" + duration_text(look.end_ms - look.first_ms),
    )
    return begin + end.rjust(max(0, width - len(begin)))
