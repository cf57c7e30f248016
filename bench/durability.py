"""The gain of async durability: single schedules, and those of many tasks, with sync and async in turn.

    make bench-durability   python -m tarry.bench.durability [--pairs 10] [--seconds 3] [--flush-ms 200]
                                                       [--folder FOLDER] [--sync-ms 0]

One cluster of three nodes, whose durability is changed between turns. Where RocketMQ is installed, the same
is measured of it afterwards, but for `entry`: two clusters of a master and two slaves, of which one flushes
before it answers (SYNC_FLUSH) and the other does not (ASYNC_FLUSH); the one whose turn it is not is idle.

A pair is the same work with each, one after the other; every other pair begins with the other one. Work is of

    single      one message at a time: per_s, p50_ms, p99_ms
    tasks32     32 tasks, each one message at a time: the same; aim: 1.5 times the messages a second of sync
    entry       one batch of 500 messages at a time, some 64 KiB: the largest write that async has on the
                event loop; held_ms is the longest for which a write has held it, sync's on a quick disk too

The data has to be on the disk that is asked about (`--folder`): in memory a sync costs nothing. With
`--sync-ms` every sync of all servers takes so much longer, as that of a slower disk does. Figures are
medians over the turns. A ratio is of async to sync, within a pair: the median over the pairs, and their
quartiles. The last line is JSON. All share the machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tarry.bench.machine import Stolen, machine
from tarry.bench.nodes import BODY, HOUR_MS, serving
from tarry.bench.side_by_side.peers.rocketmq import Rocketmq
from tarry.bench.side_by_side.servers import PeerFailed
from tarry.chaos.faults.disks import no_compiler, slow_syncs
from tarry.client.aio import Client, connect
from tarry.client.errors import TarryError
from tarry.client.operators.cluster_status import ClusterStatus
from tarry.client.producers.producer import Producer

Figures: TypeAlias = dict[str, float]
Compared: TypeAlias = dict[str, Figures]
"""By figure: `sync`, `async`, `ratio` and its quartiles."""

TOPIC: Final = "orders"  # RocketMQ has one of its own by the name of its cluster
ENTRY: Final = 500
SETTLING_S: Final = 1.0
READY_S: Final = 60.0
ASYNC, SYNC = "async", "sync"

console = Console(stderr=True, highlight=False)


def due_ms(count: int = 1) -> list[int]:
    """Return due times from an hour ahead on."""
    return [time.time_ns() // 1_000_000 + HOUR_MS + number for number in range(count)]


async def schedule(producer: Producer | Rocketmq) -> None:
    """Schedule one message."""
    await producer.schedule(TOPIC, BODY, due_ms=due_ms()[0])


async def schedule_entry(producer: Producer | Rocketmq) -> None:
    """Schedule the messages of one large entry, which only tarry's producer can."""
    assert isinstance(producer, Producer)
    await producer.schedule_batch(TOPIC, [BODY] * ENTRY, due_ms=due_ms(ENTRY))


@dataclass(frozen=True, slots=True)
class Work:
    """A call, and how many tasks make it, each one after another."""

    call: Callable[[Producer | Rocketmq], Awaitable[None]]
    tasks: int = 1
    messages: int = 1


WORKS: Final[Mapping[str, Work]] = {
    "single": Work(schedule),
    "tasks32": Work(schedule, tasks=32),
    "entry": Work(schedule_entry, messages=ENTRY),
}


AT_ROCKETMQ: Final = ("single", "tasks32")
"""What RocketMQ does as well: it takes delayed messages one by one."""


async def change(client: Client, durability: str, flush_ms: int) -> None:
    """Change the cluster's durability, as soon as the level of a new cluster allows it."""
    until = time.monotonic() + READY_S
    while True:
        try:
            await client.operator().set_cluster(durability=durability, flush_ms=flush_ms)
        except TarryError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.2)
        else:
            return


async def turn(producer: Producer | Rocketmq, work: Work, seconds: float) -> Figures:
    """Do the work for so long; return its figures."""
    took_s: list[float] = []
    await work.call(producer)  # opens its stream
    began = time.perf_counter()

    async def calls() -> None:
        while (start := time.perf_counter()) - began < seconds:
            await work.call(producer)
            took_s.append(time.perf_counter() - start)

    await asyncio.gather(*(calls() for _ in range(work.tasks)))
    return figures(took_s, work.messages, time.perf_counter() - began)


def figures(took_s: Sequence[float], messages: int, all_s: float) -> Figures:
    """Return the figures of a turn: of the times of its calls, of so many messages each."""
    p50_s, p99_s = np.percentile(took_s, (50, 99))
    return {
        "per_s": len(took_s) * messages / all_s,
        "p50_ms": float(p50_s) * 1_000,
        "p99_ms": float(p99_s) * 1_000,
    }


def compared(pairs: Sequence[tuple[Figures, Figures]]) -> Compared:
    """Return medians over pairs of turns, that of sync first, and of their ratios, with quartiles."""
    found: Compared = {}
    for name in pairs[0][0]:
        columns = np.array([(one[name], other[name]) for one, other in pairs])
        synced, deferred = np.median(columns, axis=0)
        q1, ratio, q3 = np.percentile(columns[:, 1] / columns[:, 0], (25, 50, 75))
        values = {SYNC: synced, ASYNC: deferred, "ratio": ratio, "ratio_q1": q1, "ratio_q3": q3}
        found[name] = {key: float(f"{value:.4g}") for key, value in values.items()}
    return found


async def held_ms(client: Client) -> float:
    """Return the longest for which a write of the journal has held a node's event loop."""
    told = await client.operator().status_of_all()
    holds = [hold for one in told.values() if isinstance(one, ClusterStatus) for hold in one.turns.causes]
    return max((hold.held_ms for hold in holds if hold.cause == "journal write"), default=0.0)


async def measure(
    act: Callable[[str, Work], Awaitable[Figures]], works: Sequence[str], pairs: int
) -> dict[str, Compared]:
    """Return the figures by work, of which `act` does a turn with a durability."""
    found: dict[str, list[tuple[Figures, Figures]]] = {name: [] for name in works}
    for number in range(pairs + 1):
        for name in works:
            done: dict[str, Figures] = {}
            for durability in (SYNC, ASYNC) if number % 2 else (ASYNC, SYNC):
                done[durability] = await act(durability, WORKS[name])
            if number:  # the first pair is not counted: what is used for the first time takes longer
                found[name].append((done[SYNC], done[ASYNC]))
        console.print(f"pair {number} of {pairs}", style="dim")
    return {name: compared(some) for name, some in found.items()}


async def measure_tarry(client: Client, pairs: int, seconds: float, flush_ms: int) -> dict[str, Compared]:
    """Return the figures of one cluster."""

    async def act(durability: str, work: Work) -> Figures:
        await change(client, durability, flush_ms)
        await asyncio.sleep(SETTLING_S)
        async with client.producer() as producer:
            return await turn(producer, work, seconds)

    return await measure(act, tuple(WORKS), pairs)


async def measure_rocketmq(folder: Path | None, pairs: int, seconds: float) -> dict[str, Compared]:
    """Return the figures of two of RocketMQ's clusters. Raises PeerFailed."""
    async with AsyncExitStack() as running:
        clusters = {SYNC: Rocketmq("SYNC_FLUSH"), ASYNC: Rocketmq("ASYNC_FLUSH")}
        for cluster in clusters.values():
            made = running.enter_context(tempfile.TemporaryDirectory(prefix="tarry-bench-", dir=folder))
            await cluster.start(Path(made))
            running.push_async_callback(cluster.stop)
            await cluster.open(TOPIC)

        async def act(durability: str, work: Work) -> Figures:
            await asyncio.sleep(SETTLING_S)
            return await turn(clusters[durability], work, seconds)

        return await measure(act, AT_ROCKETMQ, pairs)


def table(found: Mapping[str, Compared]) -> Table:
    """Return the figures of all work as a table."""
    made = Table("work", "figure", SYNC, ASYNC, "ratio", "quartiles")
    for work, some in found.items():
        for name, of in some.items():
            quartiles = f"{of['ratio_q1']:.2f} to {of['ratio_q3']:.2f}"
            made.add_row(work, name, f"{of[SYNC]:,}", f"{of[ASYNC]:,}", f"{of['ratio']:.2f}", quartiles)
    return made


def main(
    pairs: Annotated[int, typer.Option(min=1, help="Pairs of turns of each kind of work.")] = 10,
    seconds: Annotated[float, typer.Option(min=0.1, help="Of each turn.")] = 3.0,
    flush_ms: Annotated[int, typer.Option(min=10, max=10_000, help="Of async durability.")] = 200,
    folder: Annotated[Path | None, typer.Option(help="On the disk to measure.")] = None,
    sync_ms: Annotated[int, typer.Option(min=0, max=1_000, help="Longer for each sync; needs gcc.")] = 0,
) -> None:
    """Measure, and print the figures."""
    if sync_ms and (why := no_compiler()):
        raise typer.BadParameter(why, param_hint="--sync-ms")
    with tempfile.TemporaryDirectory(prefix="tarry-bench-") as made:
        if sync_ms:
            os.environ.update(slow_syncs(Path(made), sync_ms))  # of all servers that are started
        measure_all(pairs, seconds, flush_ms, folder, sync_ms)


def measure_all(pairs: int, seconds: float, flush_ms: int, folder: Path | None, sync_ms: int) -> None:
    """Measure tarry, and RocketMQ where it is installed; print the figures."""

    async def run(addresses: str) -> tuple[dict[str, Compared], float]:
        async with connect(addresses) as client:
            found = await measure_tarry(client, pairs, seconds, flush_ms)
            return found, await held_ms(client)

    began_s, measured_on, stolen = time.perf_counter(), machine(), Stolen()
    with serving(3, folder=folder) as cluster:
        found, held = asyncio.run(run(cluster.addresses))
    console.print(table(found))
    rocketmq: dict[str, Compared] = {}
    if why := Rocketmq().missing():
        console.print(f"[yellow]rocketmq is left out:[/] {why}")
    else:
        try:
            rocketmq = asyncio.run(measure_rocketmq(folder, pairs, seconds))
            console.print("rocketmq, ASYNC_FLUSH as async and SYNC_FLUSH as sync", table(rocketmq))
        except PeerFailed as error:
            console.print("[red]rocketmq failed:[/]", escape(str(error)))
    measured_on["stolen_percent"] = stolen.percent()
    said = {
        "pairs": pairs,
        "flush_ms": flush_ms,
        "sync_ms": sync_ms,
        **found,
        "held_ms": held,
        "rocketmq": rocketmq,
        "machine": measured_on,
    }
    console.print(f"{time.perf_counter() - began_s:.0f} s")
    print(json.dumps(said))


if __name__ == "__main__":
    typer.run(main)
