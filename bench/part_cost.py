"""The cost of a part of the nodes: a cluster with it and one without, in turns (A B B A), and their ratio.

    python -m tarry.bench.part_cost ledger [--pairs 4]
    python -m tarry.bench.part_cost metrics             with a scrape of each node every 5 s
    python -m tarry.bench.part_cost filter              a group that filters by properties, and has all

Each turn starts three nodes anew and measures two rates: of scheduling alone, 100 bytes in batches of 1,000;
and of whole lives, scheduled, delivered and acknowledged. `cpu_us` is the processor's time of all three
nodes, closing of segments included, for each message of both: other work on the machine changes rates much,
this little. Memory is a node's own at the end of a turn. The last line is JSON; `ratio` is the median, over
the pairs, of a figure with the part to that without.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any, Final

import numpy as np
import typer
from rich.console import Console

from tarry.bench.nodes import BATCH, BODY, processes_of, rss_bytes, schedule_rate, serving
from tarry.client.aio import Client, connect
from tarry.client.local.cluster import LocalCluster, Setting

SCRAPE_S: Final = 5.0
PROPERTIES: Final = {"region": "eu", "amount": "250", "kind": "order"}
FILTER: Final = "region = 'eu' AND amount BETWEEN 100 AND 500"
METRICS_AT: Final = r'"address": "(127\.0\.0\.1:\d+)", "event": "metrics"'

console = Console(stderr=True, highlight=False)


async def life_rate(
    client: Client, topic: str, count: int, properties: Mapping[str, str], by_properties: str = ""
) -> float:
    """Return messages a second, from the first that is scheduled to the last that is acknowledged."""
    producer, seen = client.producer(), 0
    async with client.consumer(topic, "bench", credit=20_000, filter=by_properties) as consumer:
        start = time.perf_counter()

        async def schedule() -> None:
            for _ in range(0, count, BATCH):
                await producer.schedule_batch(
                    topic, [BODY] * BATCH, delay_ms=1, properties=[properties] * BATCH if properties else None
                )

        scheduling = asyncio.create_task(schedule())
        async for batch in consumer.batches():
            seen += len(batch)
            done = batch.ack()
            if seen >= count:
                await done
                break
        await scheduling
        return count / (time.perf_counter() - start)


def cpu_s(cluster: LocalCluster) -> float:
    """Return the seconds that the nodes, and the processes that they waited for, have used."""
    return sum(sum(process.cpu_times()[:4]) for process in processes_of(cluster))


async def measure(cluster: LocalCluster, messages: int, part: Part, *, on: bool) -> dict[str, float]:
    """Return the figures of a cluster that has just begun."""
    properties = PROPERTIES if part is Part.FILTER else {}
    by_properties = FILTER if part is Part.FILTER and on else ""
    async with connect(cluster.addresses) as client:
        await schedule_rate(client, BODY, 10, 4)
        await life_rate(client, "warm", 5_000, properties)
        before_s = cpu_s(cluster)
        scheduled = await schedule_rate(client, BODY, messages // BATCH, 8)
        between_s = cpu_s(cluster)
        lived = await life_rate(client, "life", messages // 2, properties, by_properties)
    scheduling_s, living_s = between_s - before_s, cpu_s(cluster) - between_s
    return {
        "schedule_per_s": scheduled,
        "schedule_cpu_us": scheduling_s * 1e6 / messages,
        "life_per_s": lived,
        "life_cpu_us": living_s * 1e6 / (messages // 2),
    }


class Part(StrEnum):
    """Parts whose cost is measured."""

    LEDGER = "ledger"
    METRICS = "metrics"
    FILTER = "filter"


SETTINGS: Final[dict[Part, dict[bool, dict[str, Setting]]]] = {
    Part.LEDGER: {on: {"ledger": {"enabled": on}} for on in (True, False)},
    Part.METRICS: {True: {"metrics": {"listen": "127.0.0.1:0"}}, False: {}},
    Part.FILTER: {True: {}, False: {}},
}


@contextmanager
def scraped(cluster: LocalCluster) -> Iterator[None]:
    """Have the metrics of the nodes that tell them read again and again, by a thread."""
    logs = (node.log.read_text() for node in cluster.nodes.values())
    addresses = [address for log in logs for address in re.findall(METRICS_AT, log)]
    ended = threading.Event()

    def scrape() -> None:
        while not ended.wait(SCRAPE_S):
            for address in addresses:
                with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as page:
                    page.read()

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def turn(part: Part, messages: int, *, on: bool) -> dict[str, float]:
    """Measure one cluster, with the part or without."""
    with serving(settings=SETTINGS[part][on]) as cluster, scraped(cluster):
        figures = asyncio.run(measure(cluster, messages, part, on=on))
        return {**figures, "node_mib": rss_bytes(cluster) / 2**20}


def main(
    part: Annotated[Part, typer.Argument(help="The part whose cost is measured.")],
    pairs: Annotated[int, typer.Option(min=1, help="Turns with the part, and as many without.")] = 4,
    messages: Annotated[int, typer.Option(min=10_000, help="Of a turn's first rate.")] = 200_000,
) -> None:
    """Measure what a part of the nodes costs."""
    found: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    for number in range(pairs):
        for on in (True, False) if number % 2 == 0 else (False, True):
            figures = turn(part, messages, on=on)
            found[on].append(figures)
            told = "  ".join(f"{name} {value:,.1f}" for name, value in figures.items())
            console.print(f"{number + 1} of {pairs}, {part} {'on ' if on else 'off'}: {told}")
    result: dict[str, Any] = {"part": part, "pairs": pairs}
    for name in found[True][0]:
        with_it, without = (np.array([figures[name] for figures in found[on]]) for on in (True, False))
        ratios = with_it / without
        result[name] = {
            "on": round(float(np.median(with_it)), 1),
            "off": round(float(np.median(without)), 1),
            "ratio": round(float(np.median(ratios)), 3),
            "ratios": [round(float(ratio), 3) for ratio in ratios],
        }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    typer.run(main)
