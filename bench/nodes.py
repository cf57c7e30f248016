"""Measurements of real nodes, from one client process on the same machine."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

import numpy as np
import psutil
from numpy.typing import NDArray

from tarry.client.aio import Client
from tarry.client.local.cluster import LocalCluster, Setting
from tarry.client.results import ScheduledBatch

T = TypeVar("T")

BODY: Final = b"x" * 100
BATCH: Final = 1_000
FILL_BATCH: Final = 4_000
FILL_IN_FLIGHT: Final = 4
HOUR_MS: Final = 3_600_000


@contextmanager
def serving(
    size: int = 3, settings: Mapping[str, Setting] = MappingProxyType({}), folder: Path | None = None
) -> Iterator[LocalCluster]:
    """Have a cluster that serves while the block lasts, in a temporary folder (below `folder`)."""
    with (
        tempfile.TemporaryDirectory(prefix="tarry-bench-", dir=folder) as made,
        LocalCluster(size, Path(made), settings) as cluster,
    ):
        cluster.start()
        cluster.wait_until_serving()
        yield cluster


async def in_flight(calls: Iterable[Awaitable[T]], most: int) -> list[T]:
    """Await calls, so many at a time; `calls` makes each when its turn has come. Return what they return."""
    left, done = iter(calls), list[T]()

    async def worker() -> None:
        for call in left:
            done.append(await call)

    await asyncio.gather(*(worker() for _ in range(most)))
    return done


async def schedule_rate(client: Client, body: bytes, batches: int, at_once: int) -> float:
    """Return messages a second: batches of 1,000, due at random within an hour, a few in flight."""
    producer = client.producer()
    random = np.random.default_rng(1)
    bodies = [body] * BATCH

    def batch() -> Awaitable[object]:
        due_ms = time.time_ns() // 1_000_000 + HOUR_MS + random.integers(0, HOUR_MS, BATCH)
        return producer.schedule_batch("bench", bodies, due_ms=due_ms)

    start = time.perf_counter()
    await in_flight((batch() for _ in range(batches)), at_once)
    return batches * BATCH / (time.perf_counter() - start)


async def fill(client: Client, topic: str, due_ms: NDArray[np.int64]) -> ScheduledBatch:
    """Schedule messages of 100 bytes, due then; return the answers, in no order."""
    producer = client.producer()
    parts = (due_ms[start : start + FILL_BATCH] for start in range(0, len(due_ms), FILL_BATCH))
    calls = (producer.schedule_batch(topic, [BODY] * len(part), due_ms=part) for part in parts)
    return ScheduledBatch.joined(await in_flight(calls, FILL_IN_FLIGHT))


async def lateness_ms(client: Client, rate: int, seconds: int) -> NDArray[np.float64]:
    """Return the lateness of deliveries, ms, of a steady stream of so many a second, scheduled before."""
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


def processes_of(cluster: LocalCluster) -> list[psutil.Process]:
    """Return the nodes' processes."""
    return [psutil.Process(node.process.pid) for node in cluster.nodes.values() if node.process]


def rss_bytes(cluster: LocalCluster) -> int:
    """Return the most memory that is one node's own; pages of mapped files are the kernel's to drop."""
    return max(process.memory_full_info().uss for process in processes_of(cluster))


def written_bytes(cluster: LocalCluster) -> int:
    """Return the bytes that the nodes have had written to disk so far."""
    return sum(process.io_counters().write_bytes for process in processes_of(cluster))


def idle_cpu_percent(cluster: LocalCluster, seconds: float) -> float:
    """Return the share of one core that the busiest node burns with nothing to do."""
    before = cpu_s(cluster)
    time.sleep(seconds)
    return max(b - a for a, b in zip(before, cpu_s(cluster), strict=True)) / seconds * 100


def cpu_s(cluster: LocalCluster) -> list[float]:
    """Return the seconds of a core that each node has used."""
    clocks = (~process.pid << 3 | 2 for process in processes_of(cluster))  # as clock_getcpuclockid makes them
    return list(map(time.clock_gettime, clocks))
