"""``tarry top``: the cluster as it changes: nodes, what is due in the next minute, and topics."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import nullcontext
from typing import Annotated, Any, Final, NamedTuple

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tarry.client.aio import Client
from tarry.client.cli.bars import bars
from tarry.client.cli.options import OnCluster
from tarry.client.cli.output import Output, fields_of, out, print_json, table_of
from tarry.client.cli.status import differences, json_of, node_table, summary
from tarry.client.cli.times import duration_option, duration_text
from tarry.client.errors import Refused, TarryError
from tarry.client.operators.cluster_operator import Operator
from tarry.client.operators.cluster_status import (
    Answers,
    ClusterStatus,
    TopicStatus,
    best_of,
    released_per_s,
)

SECONDS: Final = 60
HEIGHT: Final = 5
"""Lines of the bars."""
SCALE: Final = f"{'now':<30}{'+30 s':<25}{'+60 s':>5}"
TITLE_LINES: Final = 5
"""Of a table beside its rows."""
EVERY_MS_MIN: Final = 200
EVERY: Any = "2s"
"""A text, so that the help shows it as it would be given."""
TOPIC_COLUMNS: Final = (
    "topic", "pending", "overdue", "late_p99", "released_per_s", "groups", "consumers", "in_hand", "retrying",
    "backing_off",
)  # fmt: skip


class Look(NamedTuple):
    """Answers of all nodes, and that of the best of them at the look before."""

    answers: Answers
    before: ClusterStatus | None


def top(
    topics: Annotated[
        int, typer.Option(min=0, help="How many topics are shown: the most overdue, then the fullest.")
    ] = 20,
    every_ms: Annotated[
        int, duration_option("--every", help=f"Time between two looks; at least {EVERY_MS_MIN}ms.")
    ] = EVERY,
    looks: Annotated[
        int | None, typer.Option("--looks", "-n", min=1, help="End after so many; else Ctrl-C ends it.")
    ] = None,
    *,
    cluster: OnCluster,
) -> None:
    """Watch the cluster: its nodes, lateness, what is due in the next minute, and its topics.

    A look costs each node some ms, and more with thousands of topics.

    A terminal is drawn anew with each look. Elsewhere, and with --looks, one is printed after another; with
    -o json each as a line: what status -o json prints, with pending_ahead, which has what is due by second.
    """
    if every_ms < EVERY_MS_MIN:
        raise typer.BadParameter(f"--every is at least {EVERY_MS_MIN}ms: a look costs each node some ms")

    async def work(client: Client) -> None:
        shown = _looks(client.operator(), every_ms / 1_000, looks)
        answers = await _show(shown, topics, cluster.output, whole=looks is None)
        if best_of(answers) is None:
            _raise_first(answers, TarryError)

    try:
        cluster.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


async def _looks(operator: Operator, every_s: float, most: int | None) -> AsyncIterator[Look]:
    """Yield looks; one that takes longer than the time between two delays those after it.

    Raises Refused where the first is refused by all who answer.
    """
    loop = asyncio.get_running_loop()
    before: ClusterStatus | None = None
    next_s = loop.time()
    for count in itertools.count(1):
        answers = await operator.status_of_all(seconds_ahead=SECONDS)
        best = best_of(answers)
        if count == 1 and best is None:
            _raise_first(answers, Refused)
        yield Look(answers, before)
        if count == most:
            return
        before = best or before
        next_s = max(next_s + every_s, loop.time())
        await asyncio.sleep(next_s - loop.time())


def _raise_first(answers: Answers, kind: type[TarryError]) -> None:
    """Raise the first answer that is such an error, if there is one."""
    for answer in answers.values():
        if isinstance(answer, kind):
            raise answer


async def _show(looks: AsyncIterator[Look], topics: int, output: Output, *, whole: bool) -> Answers:
    """Show looks, and return the answers of the last; ``whole``: on the whole of the terminal, if it can."""
    console, answers = out(), dict[str, ClusterStatus | TarryError]()
    drawn = whole and output is Output.TABLE and console.is_interactive
    with Live(console=console, screen=True, auto_refresh=False) if drawn else nullcontext() as live:
        async for look in looks:
            answers = dict(look.answers)
            if output is Output.JSON:
                print_json(json_of(answers))
            elif live is None:
                console.print(view(look, topics))
            else:
                live.update(_fitting(look, topics, console), refresh=True)
    return answers


def _fitting(look: Look, topics: int, console: Console) -> Group:
    """Return a look with as many topics as there is room for."""
    lines = len(console.render_lines(view(look, 0))) + TITLE_LINES
    return view(look, max(0, min(topics, console.height - lines)))


def view(look: Look, topics: int) -> Group:
    """Return a look as it is drawn."""
    best = best_of(look.answers)
    parts: list[Any] = [node_table(look.answers)]
    if best is not None:
        parts += [*map(_line, differences(best)), _line(summary(best)), *_ahead(best.pending_ahead)]
        rates = released_per_s(look.before, best)
        rows = [_topic(topic, rates) for topic in _first(best, topics)]
        left_out = len(best.topics) - len(rows)
        title = "topics" + (f", {left_out:,} more" if left_out else "")
        parts += [table_of(rows, TOPIC_COLUMNS, title, cut=True)] if rows else []
    return Group(*parts)


def _ahead(pending: tuple[int, ...]) -> list[Text]:
    """Return the bars of the next minute; a node of 0.2.0 does not tell of it."""
    if not pending:
        return [_line("what is due in the next minute is not known")]
    text = f"due in the next minute: {sum(pending):,}; in one second {max(pending):,} at most"
    return [Text(), _line(text), *map(_line, bars(pending, HEIGHT)), _line(SCALE)]


def _line(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="crop")


def _first(best: ClusterStatus, topics: int) -> list[TopicStatus]:
    ordered = sorted(best.topics, key=lambda topic: (-topic.overdue, -topic.pending, topic.topic))
    return ordered[:topics]


def _topic(topic: TopicStatus, rates: Mapping[str, float]) -> dict[str, object]:
    late = topic.lateness
    return {
        **fields_of(topic, "topic", "pending", "overdue"),
        "late_p99": duration_text(late.p99_ms) if late.released else "",
        "released_per_s": f"{rates[topic.topic]:,.0f}" if topic.topic in rates else "",
        "groups": len(topic.groups),
        **{
            name: sum(getattr(group, name) for group in topic.groups)
            for name in ("consumers", "in_hand", "retrying", "backing_off")
        },
    }
