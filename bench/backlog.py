"""A backlog of one topic or more, after all nodes were away, and how long another topic waits behind it.

    python -m tarry.bench.backlog --messages 2000000 --crowds 2

Three real nodes and one client process on this machine, once with fair shares and once in the order of due
times alone (`dispatch.overtaking_messages_max = 0`). The last line is JSON.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Annotated, Final

import numpy as np
import typer
from rich.console import Console

from tarry.bench.nodes import fill, serving
from tarry.client.aio import Client, connect
from tarry.client.local.cluster import LocalCluster

AWAY_MS: Final = 6_000
OTHER_EVERY_MS: Final = 20
OTHERS: Final = 4 * AWAY_MS // OTHER_EVERY_MS  # a quarter due while all nodes are away, as the crowd is
PER_MS_MIN: Final = 40  # scheduled meanwhile, or there is no time left before they are due

console = Console(stderr=True)


async def measure(cluster: LocalCluster, messages: int, crowds: int) -> dict[str, float]:
    """Return how long the other topic's messages waited once a leader served."""
    async with connect(cluster.addresses) as client:
        first_ms = time.time_ns() // 1_000_000 + 10_000 + messages // PER_MS_MIN
        due_ms = first_ms + np.arange(messages) * AWAY_MS // messages
        for crowd in range(crowds):
            await fill(client, f"crowd-{crowd}", due_ms[crowd::crowds])
        await fill(client, "other", first_ms + np.arange(OTHERS) * OTHER_EVERY_MS)
        taking = asyncio.create_task(_take(client))
        await _sleep_until(first_ms - 500)
        for name in cluster.nodes:
            cluster.kill(name)
        console.print("all nodes are down")
        await _sleep_until(first_ms + AWAY_MS)
        for name in cluster.nodes:
            cluster.start(name)
        await asyncio.to_thread(cluster.wait_until_serving)
        up_ms = time.time_ns() / 1e6
        console.print(f"all nodes serve, {(up_ms - first_ms - AWAY_MS) / 1_000:.1f} s after their start")
        at_ms, due_ms = await taking
    late_ms = at_ms - np.maximum(due_ms, up_ms)
    fresh = late_ms[due_ms >= up_ms]
    return {
        f"other_{name}_p{percent}_ms": round(float(np.percentile(values, percent)))
        for name, values in (("late", late_ms), ("due_later", fresh))
        for percent in (50, 99)
    }


async def _take(client: Client) -> tuple[np.ndarray, np.ndarray]:
    """Return the arrival times of the other topic's messages and their due times, ms since the epoch."""
    at_ms: list[float] = []
    due_ms: list[int] = []
    async with client.consumer("other", "bench") as consumer:
        async for batch in consumer.batches():
            at_ms += [time.time_ns() / 1e6] * len(batch)
            due_ms += batch.due_ms.tolist()
            batch.ack_soon()
            if len(at_ms) >= OTHERS:
                break
    return np.array(at_ms), np.array(due_ms)


async def _sleep_until(at_ms: int) -> None:
    await asyncio.sleep(max(0.0, at_ms / 1_000 - time.time()))


def main(
    messages: Annotated[int, typer.Option(min=1, help="Of the crowds together.")] = 2_000_000,
    crowds: Annotated[int, typer.Option(min=1, help="Topics they are in, all due in the same seconds.")] = 1,
) -> None:
    """Measure what others wait behind a backlog; the last line is JSON."""
    figures: dict[str, dict[str, float]] = {}
    for name, dispatch in {"by_due_time": {"overtaking_messages_max": 0}, "fair": {}}.items():
        console.print(f"{name}: {messages:,} messages of {crowds} topics due while all nodes are down")
        with serving(settings={"dispatch": dispatch}) as cluster:
            figures[name] = asyncio.run(measure(cluster, messages, crowds))
        console.print(f"{name}: {figures[name]}")
    print(json.dumps({"messages": messages, "crowds": crowds, **figures}))


if __name__ == "__main__":
    typer.run(main)
