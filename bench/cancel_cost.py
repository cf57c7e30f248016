"""The cost of cancel, get and reschedule by id, with ten thousand and with ten million messages pending.

    make bench-cost         python -m tarry.bench.cancel_cost [--small 10000] [--large 10000000] [--pairs 10]

Two clusters of three nodes run at once, each with its messages pending, due within the same day. A pair is
the same work on both, one after the other, of ids that are drawn from all that is pending; every other pair
begins with the other cluster. Work is of single ids, one call after another (p50 and p99 of a turn), or of
calls of a thousand. `cpu_s_per_100k` is the CPU time of all three nodes for 100,000 ids, with the checkpoint
that follows, without what they use when idle. Half of a turn's cancels are scheduled in addition before it.

Figures are medians over the turns. A ratio is of the large cluster to the small one, within a pair: the
median over the pairs, and their quartiles. The last line is JSON. All share the machine.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from tarry.bench.machine import Stolen, machine
from tarry.bench.nodes import FILL_BATCH, HOUR_MS, cpu_s, fill, serving
from tarry.client.aio import Client, connect
from tarry.client.local.cluster import LocalCluster
from tarry.client.producers.producer import Producer
from tarry.client.results import CancelOutcome, ChangeOutcome, MessageState, ids_of

Figures: TypeAlias = dict[str, float]
Compared: TypeAlias = dict[str, Figures]
"""By figure: `small`, `large`, `ratio` and its quartiles."""
Draw: TypeAlias = NDArray[np.int64]

TOPIC: Final = "bench"
CHECKPOINT_MS: Final = 500
CHECKPOINTED_S: Final = 0.8
IDLE_S: Final = 5.0
SETTLING_S: Final = 5.0

console = Console(stderr=True, highlight=False)


def due_ms(random: np.random.Generator, count: int) -> Draw:
    """Draw due times within a day, from an hour ahead on."""
    return time.time_ns() // 1_000_000 + HOUR_MS + random.integers(0, 24 * HOUR_MS, count)


class Pending:
    """The pending messages of a cluster."""

    def __init__(self) -> None:
        self._rows = np.empty((0, 2), np.uint32)  # hour and global index of each

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, hour: NDArray[np.uint32], global_index: NDArray[np.uint32]) -> None:
        """Add messages, columns of shape (n,)."""
        self._rows = np.concatenate([self._rows, np.column_stack((hour, global_index))])

    def draw(self, random: np.random.Generator, count: int, *, kept: bool = False) -> list[str]:
        """Return the ids of messages from all over, each once; they are pending no more, but if `kept`."""
        chosen = random.choice(len(self._rows), count, replace=False)
        hour, global_index = self._rows[chosen].T
        if not kept:
            self._rows = np.delete(self._rows, chosen, axis=0)
        return ids_of(0, hour, global_index)


async def cancel(producer: Producer, ids: Sequence[str], _: Draw) -> set[str]:
    """Cancel messages; return the outcomes."""
    return {*await producer.cancel_many(ids)}


async def reschedule(producer: Producer, ids: Sequence[str], drawn_ms: Draw) -> set[str]:
    """Reschedule messages; return the outcomes."""
    changes = await producer.reschedule_many(ids, due_ms=drawn_ms.tolist())
    return {change.outcome for change in changes}


async def get(producer: Producer, ids: Sequence[str], _: Draw) -> set[str]:
    """Look a message up; return its state."""
    (one,) = ids
    return {(await producer.get(one)).state}


@dataclass(frozen=True, slots=True)
class Work:
    """Calls of a turn."""

    call: Callable[[Producer, Sequence[str], Draw], Awaitable[set[str]]]
    calls: int
    ids: int = 1
    """Of each call."""


EXPECTED: Final = {
    MessageState.PENDING,
    *(CancelOutcome.CANCELLED, CancelOutcome.ALREADY_CANCELLED),  # the latter where an answer was lost
    *(ChangeOutcome.CHANGED, ChangeOutcome.ALREADY_SO),
}
WORKS: Final[Mapping[str, Work]] = {
    "get": Work(get, 300),
    "cancel": Work(cancel, 300),
    "cancel_1000": Work(cancel, 10, 1_000),
    "reschedule": Work(reschedule, 300),
    "reschedule_1000": Work(reschedule, 10, 1_000),
}


@dataclass(slots=True)
class Side:
    """A cluster with so many messages pending, give or take half a turn's cancels."""

    cluster: LocalCluster
    client: Client
    size: int
    random: np.random.Generator
    pending: Pending
    idle_cpu: float = 0.0
    """Seconds of a core that all its nodes use in a second without work."""

    async def fill(self, count: int) -> None:
        """Schedule messages until so many are pending, or a few more: in whole batches."""
        lacking = -(-(count - len(self.pending)) // FILL_BATCH) * FILL_BATCH
        if lacking > 0:
            made = await fill(self.client, TOPIC, due_ms(self.random, lacking))
            self.pending.add(made.hour, made.global_index)

    async def idle(self) -> None:
        """Measure what the nodes use without work."""
        before = sum(cpu_s(self.cluster))
        await asyncio.sleep(IDLE_S)
        self.idle_cpu = (sum(cpu_s(self.cluster)) - before) / IDLE_S

    async def turn(self, work: Work) -> Figures:
        """Do the work once; return its figures. Raises RuntimeError where a message was not pending."""
        count, producer = work.calls * work.ids, self.client.producer()
        kept = work.call is get
        if not kept:
            await self.fill(self.size + count // 2)
        ids, drawn_ms = self.pending.draw(self.random, count, kept=kept), due_ms(self.random, count)
        await asyncio.sleep(CHECKPOINTED_S)
        used_s, began_s, took_s, outcomes = sum(cpu_s(self.cluster)), time.perf_counter(), [], set[str]()
        for start in range(0, count, work.ids):
            part, call_s = slice(start, start + work.ids), time.perf_counter()
            outcomes |= await work.call(producer, ids[part], drawn_ms[part])
            took_s.append(time.perf_counter() - call_s)
        await asyncio.sleep(CHECKPOINTED_S)
        idle_s = self.idle_cpu * (time.perf_counter() - began_s)
        used_s = sum(cpu_s(self.cluster)) - used_s - idle_s
        if work.call is reschedule:  # so that every message of every turn is one that was never moved
            await producer.cancel_many(ids)
        if not outcomes <= EXPECTED:
            raise RuntimeError(f"a message that was drawn was not pending: {sorted(outcomes)}")
        return figures(took_s, work.ids, used_s)


def figures(took_s: Sequence[float], ids: int, used_s: float) -> Figures:
    """Return the figures of a turn: of the times of its calls, of so many ids each, and of its CPU time."""
    count = len(took_s) * ids
    cpu = {"cpu_s_per_100k": used_s / count * 100_000}
    if ids > 1:
        return {"per_s": count / sum(took_s)} | cpu
    p50_s, p99_s = np.percentile(took_s, (50, 99))
    return {"p50_ms": float(p50_s) * 1_000, "p99_ms": float(p99_s) * 1_000} | cpu


def compared(pairs: Sequence[tuple[Figures, Figures]]) -> Compared:
    """Return medians over pairs of turns, the small cluster's first, and of their ratios, with quartiles."""
    found: Compared = {}
    for name in pairs[0][0]:
        columns = np.array([(one[name], other[name]) for one, other in pairs])
        small, large = np.median(columns, axis=0)
        q1, ratio, q3 = np.percentile(columns[:, 1] / columns[:, 0], (25, 50, 75))
        values = {"small": small, "large": large, "ratio": ratio, "ratio_q1": q1, "ratio_q3": q3}
        found[name] = {key: float(f"{value:.4g}") for key, value in values.items()}
    return found


def table(found: Mapping[str, Compared]) -> Table:
    """Return the figures of all work as a table."""
    made = Table("work", "figure", "small", "large", "ratio", "quartiles")
    for work, figures in found.items():
        for name, of in figures.items():
            quartiles = f"{of['ratio_q1']:.2f} to {of['ratio_q3']:.2f}"
            made.add_row(work, name, f"{of['small']:,}", f"{of['large']:,}", f"{of['ratio']:.2f}", quartiles)
    return made


async def measure(small: Side, large: Side, pairs: int) -> dict[str, Compared]:
    """Fill both clusters, and return the figures by work."""
    found: dict[str, list[tuple[Figures, Figures]]] = {name: [] for name in WORKS}
    for side in (small, large):
        console.print(f"scheduling {side.size:,} messages")
        await side.fill(side.size)
    await asyncio.sleep(SETTLING_S)
    for side in (small, large):
        await side.idle()
    for number in range(pairs + 1):
        for name, work in WORKS.items():
            order = (small, large) if number % 2 else (large, small)
            done = {side.size: await side.turn(work) for side in order}
            if number:  # the first pair is not counted: what is used for the first time takes longer
                found[name].append((done[small.size], done[large.size]))
        console.print(f"pair {number} of {pairs}", style="dim")
    return {name: compared(some) for name, some in found.items()}


async def run(
    clusters: tuple[LocalCluster, LocalCluster], sizes: tuple[int, int], pairs: int
) -> dict[str, Compared]:
    """Connect, and return the figures by work."""
    async with connect(clusters[0].addresses) as one, connect(clusters[1].addresses) as other:
        sides = [
            Side(cluster, client, size, np.random.default_rng(size), Pending())
            for cluster, client, size in zip(clusters, (one, other), sizes, strict=True)
        ]
        return await measure(sides[0], sides[1], pairs)


def main(
    small: Annotated[int, typer.Option(min=10_000, help="Pending in one cluster.")] = 10_000,
    large: Annotated[int, typer.Option(min=10_001, help="Pending in the other.")] = 10_000_000,
    pairs: Annotated[int, typer.Option(min=1, help="Pairs of turns of each kind of work.")] = 10,
) -> None:
    """Measure, and print the figures."""
    began_s, measured_on, stolen = time.perf_counter(), machine(), Stolen()
    settings = {"dispatch": {"checkpoint_ms": CHECKPOINT_MS}}
    with serving(3, settings) as one, serving(3, settings) as other:
        found = asyncio.run(run((one, other), (small, large), pairs))
    console.print(table(found))
    measured_on["stolen_percent"] = stolen.percent()
    said = {"small": small, "large": large, "pairs": pairs, **found, "machine": measured_on}
    console.print(f"{time.perf_counter() - began_s:.0f} s")
    print(json.dumps(said))


if __name__ == "__main__":
    typer.run(main)
