"""A cancel of a million messages by due time, under load: what it takes, and how late another topic is.

    python -m tarry.bench.bulk_cancel [--messages 1000000] [--rate 1000]

Three nodes hold the messages, of which the due range has all but a tenth. Meanwhile another topic's messages
are scheduled at a steady rate, due after a second, and consumed; the consumer measures their lateness, for
a while without the cancel and then while it runs. The last line is JSON.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final

import numpy as np
import typer
from rich.console import Console

from tarry.bench.nodes import BATCH, BODY, serving
from tarry.client.aio import Client, connect
from tarry.client.local.cluster import LocalCluster

SPREAD_MS: Final = 4 * 3_600_000
BEFORE_S: Final = 15.0
STEP_S: Final = 0.05

console = Console(stderr=True, highlight=False)


async def filled(client: Client, messages: int) -> tuple[int, int]:
    """Schedule messages, due in more than an hour; return the due range of nine tenths of them."""
    begin_ms = time.time_ns() // 1_000_000 + 3_600_000
    for start in range(0, messages, BATCH):
        due_ms = begin_ms + (np.arange(start, start + BATCH) * 104_729) % SPREAD_MS
        await client.producer().schedule_batch("campaign", [BODY] * BATCH, due_ms=due_ms)
    return begin_ms + SPREAD_MS // 10, begin_ms + SPREAD_MS


@asynccontextmanager
async def loaded(client: Client, rate: int) -> AsyncIterator[list[float]]:
    """Schedule and consume another topic's messages; give the lateness of each, in ms."""
    late_ms: list[float] = []

    async def produce() -> None:
        batch, loop = max(1, round(rate * STEP_S)), asyncio.get_running_loop()
        producer, next_s = client.producer(), loop.time()
        while True:
            await producer.schedule_batch("others", [BODY] * batch, delay_ms=[1_000] * batch)
            next_s += STEP_S
            await asyncio.sleep(max(0.0, next_s - loop.time()))

    async def consume() -> None:
        async with client.consumer("others", "g", start="earliest", credit=10_000) as consumer:
            async for message in consumer:
                late_ms.append(time.time_ns() / 1e6 - message.due_ms)
                message.ack_soon()

    tasks = [asyncio.create_task(work()) for work in (produce, consume)]
    try:
        yield late_ms
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def figures(late_ms: list[float]) -> dict[str, float]:
    """Return the lateness, in ms."""
    if not late_ms:
        return {"messages": 0}
    names = ("p50_ms", "p99_ms", "max_ms")
    values = np.percentile(late_ms, (50, 99, 100))
    return {"messages": len(late_ms), **{n: round(float(v), 1) for n, v in zip(names, values, strict=True)}}


async def measure(cluster: LocalCluster, messages: int, rate: int) -> dict[str, Any]:
    """Return the figures of one cancel."""
    async with connect(cluster.addresses, deadline_ms=60_000) as client:
        console.print(f"scheduling {messages:,} messages")
        from_ms, to_ms = await filled(client, messages)
        async with loaded(client, rate) as late_ms:
            await asyncio.sleep(2)
            late_ms.clear()
            await asyncio.sleep(BEFORE_S)
            before = figures(late_ms)
            late_ms.clear()
            console.print("cancelling")
            calls, started_s = 0, time.perf_counter()
            wanted = client.query().cancel_matching("campaign", due_from_ms=from_ms, due_to_ms=to_ms)
            async for told in wanted:
                last, calls = told, calls + 1
            seconds = time.perf_counter() - started_s
            meanwhile = figures(late_ms)
    return {
        "cancelled": last.cancelled,
        "seconds": round(seconds, 1),
        "per_s": round(last.cancelled / seconds),
        "calls": calls,
        "lateness_before": before,
        "lateness_meanwhile": meanwhile,
    }


def main(
    messages: Annotated[int, typer.Option(help="Pending messages of the topic.")] = 1_000_000,
    rate: Annotated[int, typer.Option(help="Messages a second of the other topic.")] = 1_000,
) -> None:
    """Run, and print the figures."""
    with serving(3) as cluster:
        done = asyncio.run(measure(cluster, messages, rate))
    print(json.dumps({"messages": messages, "rate": rate, **done}))


if __name__ == "__main__":
    typer.run(main)
