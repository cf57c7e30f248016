"""The cost of keys: of scheduling messages that have one, and of looking one up among ten million.

    python -m tarry.bench.keys [--pairs 3] [--messages 200000] [--rows 10000000]

    rate, node_us   messages a second and the processor's time of all three nodes for each, in batches of
                    1,000 that are serialized before: with one key each, with one tag of the same bytes
                    instead, with an idempotency key instead, each of them new, and of nothing but the
                    body; in turns (A B C D D C B A)
    lookup_ms       of one key, with the index's runs in the page cache, by a direct call
    unused_ms       of 1,000 idempotency keys at once that nobody has used, likewise by a direct call
    find_ms         the same by calls of one client to a cluster with the messages of all turns

Prints the figures and, as the last line, JSON; a ratio is of medians. All processes share the machine.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from itertools import cycle
from pathlib import Path
from typing import Annotated, Any, Final

import grpc.aio
import numpy as np
import typer
from rich.console import Console

from tarry.bench.machine import machine
from tarry.bench.nodes import BATCH, BODY, HOUR_MS, cpu_s, serving
from tarry.client.aio import connect
from tarry.client.local.cluster import LocalCluster
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_producer_pb2 import ScheduleBatchRequest
from tarry.wheel.keys.key_index import KeyIndex, find
from tarry.wheel.keys.run import PLACES_END, ROW

KINDS: Final = ("key", "tag", "idempotency", "body")
AT_ONCE: Final = 4
RUN_ROWS: Final = 65_536
LOOKUPS: Final = 1_000
UNUSED: Final = 50

console = Console(stderr=True, highlight=False)


def record(kind: str, number: int) -> bytes:
    """Return a record of 100 bytes of body, with about 20 of a key or tag beside it."""
    match kind:
        case "key":
            return Record(body=BODY, keys=[f"order-{number:014}"]).SerializeToString()
        case "tag":
            return Record(body=BODY, tags=[f"order-{number:014}"]).SerializeToString()
        case "idempotency":
            return Record(body=BODY, idempotency_key=f"order-{number:014}").SerializeToString()
        case _:
            return Record(body=BODY).SerializeToString()


def requests(kind: str, first: int, messages: int) -> list[bytes]:
    """Return requests for so many messages, serialized."""
    random, now_ms = np.random.default_rng(first), time.time_ns() // 1_000_000
    made = []
    for start in range(first, first + messages, BATCH):
        due_ms = now_ms + HOUR_MS + random.integers(0, HOUR_MS, BATCH)
        records = [record(kind, number) for number in range(start, start + BATCH)]
        made.append(
            ScheduleBatchRequest(topics=["bench"], due_ms=due_ms, records=records).SerializeToString()
        )
    return made


async def turn(cluster: LocalCluster, made: list[bytes]) -> dict[str, float]:
    """Send prepared requests, a few at a time; return the figures."""
    address = cluster.nodes[cluster.wait_until_serving()].address
    async with grpc.aio.insecure_channel(address) as channel:
        schedule: Any = channel.unary_unary("/tarry.v1.ProducerService/ScheduleBatch", None, None)
        await schedule(made[0])
        left = iter(made[1:])
        used, start = sum(cpu_s(cluster)), time.perf_counter()

        async def worker() -> None:
            for request in left:
                await schedule(request)

        await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
        took_s = time.perf_counter() - start
    await asyncio.sleep(1)  # what followers and threads still do
    count = (len(made) - 1) * BATCH
    return {"rate": count / took_s, "node_us": (sum(cpu_s(cluster)) - used) / count * 1e6}


async def scheduling(pairs: int, messages: int) -> dict[str, Any]:
    """Return the figures of scheduling by kind, and the time of calls that find a key."""
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    numbers = 0
    with serving() as cluster:
        order = [*KINDS, *reversed(KINDS)]
        for kind, _ in zip(cycle(order), range(pairs * len(order) + 1), strict=False):
            figures = await turn(cluster, requests(kind, numbers, messages))
            if numbers:  # the first turn is not counted: files are new
                found[kind].append(figures)
                told = f"{kind:11} {figures['rate']:9,.0f}/s {figures['node_us']:6.2f} us"
                console.print(told, style="dim")
            else:
                first_kind = kind
            numbers += messages
        assert first_kind == "key"
        taken = []
        async with connect(cluster.addresses) as client:
            for number in np.random.default_rng(1).integers(1, messages, LOOKUPS).tolist():
                start = time.perf_counter()
                page = await client.query().find("bench", f"order-{number:014}")
                taken.append((time.perf_counter() - start) * 1_000)
                assert len(page.messages) == 1
    medians = {
        kind: {name: statistics.median(one[name] for one in some) for name in ("rate", "node_us")}
        for kind, some in found.items()
    }
    key, tag = medians["key"], medians["tag"]
    return {
        **medians,
        "rate_ratio": key["rate"] / tag["rate"],
        "node_us_ratio": key["node_us"] / tag["node_us"],
        "find_ms": spread(taken),
    }


def lookups(rows: int) -> dict[str, Any]:
    """Return the figures of an index of so many rows, written and merged as a node does."""
    random, probes = np.random.default_rng(1), []
    with tempfile.TemporaryDirectory(prefix="tarry-bench-") as folder:
        index, merging_s, start = KeyIndex(Path(folder) / "keys"), 0.0, time.perf_counter()
        for first in range(0, rows, RUN_ROWS):
            some = np.empty(min(RUN_ROWS, rows - first), ROW)
            some["hash"] = random.integers(0, 2**64, len(some), dtype=np.uint64)
            some["place"] = np.arange(first, first + len(some), dtype=np.uint64) + (
                np.uint64(500_000) << np.uint64(32)
            )
            probes.append((int(some["hash"][0]), int(some["place"][0])))
            index.add([some])
            index.commit(index.generation + 1)
            began = time.perf_counter()
            while chosen := index.choose(lambda hours: np.zeros(len(hours), np.bool_)):
                made = index.merge(chosen, lambda hours: np.zeros(len(hours), np.bool_))
                index.replace(chosen, made)
                index.commit(index.generation)
                index.forget(chosen)
            merging_s += time.perf_counter() - began
        all_s = time.perf_counter() - start
        taken = []
        for _, (key_hash, message) in zip(range(LOOKUPS), cycle(probes), strict=False):
            start = time.perf_counter()
            assert find(index.runs, key_hash, 0, PLACES_END, 100).tolist() == [message]
            taken.append((time.perf_counter() - start) * 1_000)
        unused = []
        for _ in range(UNUSED):
            hashes = np.sort(random.integers(0, 2**64, BATCH, dtype=np.uint64))
            start = time.perf_counter()
            assert not any(len(run.find_any(hashes, 0)) for run in index.runs)
            unused.append((time.perf_counter() - start) * 1_000)
        size = sum(path.stat().st_size for path in index.folder.iterdir())
    return {
        "rows": rows,
        "runs": len(index.runs),
        "bytes_per_row": size / rows,
        "write_us": (all_s - merging_s) / rows * 1e6,
        "merge_us": merging_s / rows * 1e6,
        "lookup_ms": spread(taken),
        "unused_ms": spread(unused),
    }


def spread(taken: list[float]) -> dict[str, float]:
    """Return the median, the 99th of a hundred, and the most."""
    return {"p50": statistics.median(taken), "p99": float(np.percentile(taken, 99)), "max": max(taken)}


def main(
    pairs: Annotated[int, typer.Option(min=1)] = 3,
    messages: Annotated[int, typer.Option(min=2 * BATCH)] = 200_000,
    rows: Annotated[int, typer.Option(min=1)] = 10_000_000,
) -> None:
    """Measure, and print the figures."""
    found = {
        "machine": machine(),
        "index": lookups(rows),
        "scheduling": asyncio.run(scheduling(pairs, messages)),
    }
    console.print(found["index"])
    console.print(found["scheduling"])
    print(json.dumps(found))


if __name__ == "__main__":
    typer.run(main)
