"""The README's figures, from one run: a real three-node cluster on this machine, and one client process.

    python -m tarry.bench.quick

Prints a table and, as the last line, JSON. All processes share the machine's cores.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

from tarry.client.aio import Client, connect
from tarry.client.local_cluster import LocalCluster

HOUR_MS = 3_600_000
BODY = b"x" * 100
BATCH = 1_000

console = Console(stderr=True)


async def schedule_rate(client: Client, body: bytes, batches: int, in_flight: int) -> float:
    """Return messages a second: batches of 1,000, due at random within an hour, a few in flight."""
    producer = client.producer()
    rng = np.random.default_rng(1)
    bodies = [body] * BATCH
    left = iter(range(batches))

    async def worker() -> None:
        for _ in left:
            due_ms = time.time_ns() // 1_000_000 + HOUR_MS + rng.integers(0, HOUR_MS, BATCH)
            await producer.schedule_batch("bench", bodies, due_ms=due_ms)

    start = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return batches * BATCH / (time.perf_counter() - start)


async def schedule_tasks(client: Client, tasks: int, each: int) -> float:
    """Return messages a second of plain ``await producer.schedule(...)`` from many tasks."""
    producer = client.producer()

    async def worker() -> None:
        for _ in range(each):
            await producer.schedule("bench", BODY, delay_ms=2 * HOUR_MS)

    start = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(tasks)))
    return tasks * each / (time.perf_counter() - start)


async def schedule_one_ms(client: Client, count: int) -> list[float]:
    """Return the ms that each of so many single schedules took, one after another."""
    producer = client.producer()
    taken = []
    for _ in range(count):
        start = time.perf_counter()
        await producer.schedule("bench", BODY, delay_ms=2 * HOUR_MS)
        taken.append((time.perf_counter() - start) * 1_000)
    return taken


async def lateness_ms(client: Client, rate: int, seconds: int) -> np.ndarray:
    """Return due → in the consumer's hand, ms, of a steady stream of so many a second."""
    topic = f"steady-{rate}"
    count = rate * seconds
    producer = client.producer()
    first_ms = time.time_ns() // 1_000_000 + 3_000
    due_ms = first_ms + np.arange(count) * 1_000 // rate
    late = np.empty(count)
    seen = 0
    async with client.consumer(topic, "bench", credit=10_000) as consumer:
        for start in range(0, count, BATCH):
            part = due_ms[start : start + BATCH]
            await producer.schedule_batch(topic, [BODY] * len(part), due_ms=part)
        async for batch in consumer.batches():
            now_ms = time.time_ns() / 1e6
            late[seen : seen + len(batch)] = now_ms - batch.due_ms
            seen += len(batch)
            batch.ack_soon()
            if seen >= count:
                return late
    raise RuntimeError("the consumer ended early")


async def mass_expiry_s(client: Client, count: int) -> float:
    """Return the seconds from one common due time of so many messages to the last acknowledgement."""
    producer = client.producer()
    due_ms = time.time_ns() // 1_000_000 + 4_000
    seen = 0
    async with client.consumer("mass", "bench", credit=100_000) as consumer:
        for _ in range(0, count, BATCH):
            await producer.schedule_batch("mass", [BODY] * BATCH, due_ms=[due_ms] * BATCH)
        async for batch in consumer.batches():
            seen += len(batch)
            done = batch.ack()
            if seen >= count:
                await done
                return time.time_ns() / 1e9 - due_ms / 1e3
    raise RuntimeError("the consumer ended early")


def processes_of(cluster: LocalCluster) -> list[psutil.Process]:
    """Return the nodes' processes."""
    return [psutil.Process(node.process.pid) for node in cluster.nodes.values() if node.process]


def rss_bytes(cluster: LocalCluster) -> int:
    """Return the most memory that is one node's own; pages of mapped files are the kernel's to drop."""
    return max(process.memory_full_info().uss for process in processes_of(cluster))


def idle_cpu_percent(cluster: LocalCluster, seconds: float) -> float:
    """Return the share of one core that the busiest node burns with nothing to do."""
    processes = processes_of(cluster)
    before = [sum(p.cpu_times()[:2]) for p in processes]
    time.sleep(seconds)
    after = [sum(p.cpu_times()[:2]) for p in processes]
    return max(b - a for a, b in zip(before, after, strict=True)) / seconds * 100


async def measure(cluster: LocalCluster) -> dict[str, float]:
    """Return every figure."""
    figures: dict[str, float] = {}

    def keep(values: dict[str, float]) -> None:
        figures.update(values)
        console.print("  " + "  ".join(f"{name} {value:,.2f}" for name, value in values.items()))

    await asyncio.sleep(1)
    keep({"idle_cpu_percent": await asyncio.to_thread(idle_cpu_percent, cluster, 5)})
    async with connect(cluster.addresses) as client:
        await schedule_rate(client, BODY, 20, 4)
        keep({"rss_mib_empty": rss_bytes(cluster) / 2**20})
        rates = [await schedule_rate(client, BODY, 100, 8) for _ in range(3)]
        keep(_spread("schedule_1000x100_per_s", rates))
        keep(
            _spread(
                "schedule_1000x1k_per_s", [await schedule_rate(client, b"x" * 1024, 50, 4) for _ in range(3)]
            )
        )
        keep(_spread("schedule_tasks32_per_s", [await schedule_tasks(client, 32, 200) for _ in range(3)]))
        keep(_percentiles("schedule_one", await schedule_one_ms(client, 300)))
        for rate in (1_000, 5_000):
            keep(_percentiles(f"lateness_{rate // 1000}k", await lateness_ms(client, rate, 10)))
        keep({"mass_100k_s": await mass_expiry_s(client, 100_000)})
        pending = (await client.operator().status()).pending
        await schedule_rate(client, BODY, max(1, (1_000_000 - pending) // BATCH), 8)
        pending = (await client.operator().status()).pending
        keep({"pending": pending, "rss_mib_1m": rss_bytes(cluster) / 2**20})
    files = (cluster.folder / "n1").glob("state-*/hours/*/*")
    disk = sum(file.stat().st_blocks * 512 for file in files)
    keep({"disk_bytes_per_pending": disk / (pending + 160_000)})
    return figures


def _spread(name: str, values: list[float]) -> dict[str, float]:
    return {name: float(np.median(values)), f"{name}_min": min(values), f"{name}_max": max(values)}


def _percentiles(name: str, values: Iterable[float]) -> dict[str, float]:
    array = np.fromiter(values, dtype=float)
    return {
        f"{name}_min_ms": float(array.min()),
        f"{name}_p50_ms": float(np.percentile(array, 50)),
        f"{name}_p99_ms": float(np.percentile(array, 99)),
    }


def main() -> None:
    """Run it all."""
    console.print(f"three nodes and one client on {os.cpu_count()} cores")
    with (
        tempfile.TemporaryDirectory(prefix="tarry-bench-") as folder,
        LocalCluster(3, Path(folder)) as cluster,
    ):
        cluster.start()
        cluster.wait_until_serving()
        figures = asyncio.run(measure(cluster))
    table = Table("figure", "value")
    for name, value in figures.items():
        table.add_row(name, f"{value:,.2f}")
    Console().print(table)
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
