"""The console beside a loaded cluster: what its pages cost its own process, browsers and the leader.

    python -m tarry.bench.console_pages [--pending 1000000] [--topics 50]

Three nodes hold the pending messages. Each page is loaded some times, one after another: `ms` is the time
until its last byte (median, highest), `bytes` its size as sent, compressed. Then every page's event stream
is open at once; `leader_cpu_percent` is the leader's use of a core, with them and without, in turns
(A B B A). The last line is JSON.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from statistics import median
from typing import Annotated, Any, Final

import httpx
import psutil
import typer
from rich.console import Console

from tarry.bench.nodes import BATCH, BODY, serving
from tarry.client.aio import connect
from tarry.client.local.cluster import LocalCluster

PAGES: Final = (
    "/",
    "/ahead",
    "/ahead?span=3600",
    "/topics",
    "/topics/{topic}",
    "/messages/{topic}",
    "/groups",
    "/cluster",
    "/message/{id}",
)
STREAMS: Final = (
    "/live/now",
    "/live/ahead",
    "/live/topics",
    "/live/topics/{topic}",
    "/live/groups",
    "/live/cluster",
)
ASSETS: Final = re.compile(r'(?:src|href)="(/static/[^"]+)"')
LOADS: Final = 20
TURN_S: Final = 20.0
SPREAD_MS: Final = 3_600_000
GROUPS: Final = 3

console = Console(stderr=True, highlight=False)


async def filled(cluster: LocalCluster, pending: int, topics: int) -> str:
    """Schedule messages, due in more than ten minutes and up to an hour later; return the id of one."""
    names = [f"topic-{at:04d}" for at in range(topics)]
    async with connect(cluster.addresses) as client:
        operator, producer = client.operator(), client.producer()
        for name in names:
            await operator.create_topic(name)
            for group in range(GROUPS):
                await operator.create_group(name, f"group-{group}")
        first = ""
        for at in range(0, pending, BATCH):
            delays_ms = [600_000 + (at * 7_919 + one * 104_729) % SPREAD_MS for one in range(BATCH)]
            made = await producer.schedule_batch(
                names[at // BATCH % topics], [BODY] * BATCH, delay_ms=delays_ms
            )
            first = first or made.ids[0]
    return first


async def loaded(http: httpx.AsyncClient, path: str) -> dict[str, float]:
    """Return how long a page takes, and its size."""
    times_ms, size_bytes = [], 0
    for _ in range(LOADS):
        started_s = time.perf_counter()
        async with http.stream("GET", path) as answer:
            size_bytes = sum([len(part) async for part in answer.aiter_raw()])
            answer.raise_for_status()
        times_ms.append((time.perf_counter() - started_s) * 1_000)
        await asyncio.sleep(0.3)  # some loads find a look, some make one
    return {"ms": round(median(times_ms), 1), "ms_max": round(max(times_ms), 1), "bytes": size_bytes}


async def assets_bytes(http: httpx.AsyncClient) -> int:
    """Return the size of all that the first page needs beside itself, compressed."""
    total = 0
    for path in set(ASSETS.findall((await http.get("/")).text)):
        async with http.stream("GET", path) as answer:
            total += sum([len(part) async for part in answer.aiter_raw()])
    return total


async def leader_percent(leader: psutil.Process, http: httpx.AsyncClient, streams: tuple[str, ...]) -> float:
    """Return the leader's use of a core while these streams are open, in percent."""
    async with AsyncExitStack() as stack:
        readers = []
        for path in streams:
            answer = await stack.enter_async_context(http.stream("GET", path))
            answer.raise_for_status()
            readers.append(asyncio.create_task(_read(answer)))
        await asyncio.sleep(3)
        before, started_s = sum(leader.cpu_times()[:2]), time.perf_counter()
        await asyncio.sleep(TURN_S)
        used_s = sum(leader.cpu_times()[:2]) - before
        passed_s = time.perf_counter() - started_s
        for reader in readers:
            reader.cancel()
    return used_s / passed_s * 100


async def _read(answer: httpx.Response) -> None:
    async for _ in answer.aiter_raw():
        pass


@contextmanager
def console_of(servers: str) -> Iterator[str]:
    """Run a console beside the cluster, and yield its address."""
    command = [sys.executable, "-m", "tarry.node", "console", "--listen", "127.0.0.1:0", "-o", "json"]
    process = subprocess.Popen([*command, "-s", servers], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.wait()


async def measure(url: str, leader: psutil.Process, message_id: str) -> dict[str, Any]:
    """Return the figures of the pages, and of the leader while they are open."""
    names = {"topic": "topic-0000", "id": message_id}
    streams = tuple(path.format(**names) for path in STREAMS)
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        pages = {path: await loaded(http, path.format(**names)) for path in PAGES}
        assets = await assets_bytes(http)
        turns = [
            await leader_percent(leader, http, streams if on else ()) for on in (False, True, True, False)
        ]
    percent = {"without": round((turns[0] + turns[3]) / 2, 2), "with": round((turns[1] + turns[2]) / 2, 2)}
    return {"pages": pages, "assets_bytes": assets, "leader_cpu_percent": percent}


def run(pending: int, topics: int) -> dict[str, Any]:
    """Start everything, and return the figures."""
    with serving() as cluster:
        console.print(f"scheduling {pending:,} messages to {topics:,} topics")
        message_id = asyncio.run(filled(cluster, pending, topics))
        leader = cluster.nodes[cluster.wait_until_serving()].process
        assert leader is not None
        with console_of(cluster.addresses) as url:
            found = asyncio.run(measure(url, psutil.Process(leader.pid), message_id))
    return {"pending": pending, "topics": topics, "groups": topics * GROUPS, **found}


def main(
    pending: Annotated[int, typer.Option(min=BATCH, help="Messages in the wheel.")] = 1_000_000,
    topics: Annotated[int, typer.Option(min=1, help="Topics, each with three groups.")] = 50,
) -> None:
    """Measure the console's pages beside three nodes."""
    print(json.dumps(run(pending, topics)), flush=True)


if __name__ == "__main__":
    typer.run(main)
