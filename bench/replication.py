"""The cost of replication: syncs, latency, the leader's work, and the stream of a whole state.

    python -m tarry.bench.replication

    syncs       journal commits per node (one write and one fdatasync each) for one entry of 1 MiB, and for
                1,000 small proposals that wait together
    commit_ms   from a lone proposal to its outcome, on three idle replicas
    leader_us   CPU time of the leader's whole process per message, in batches of 1,000 messages of 120 bytes;
                its machine applies nothing, so it is all replication
    leader_small_us   the same for single proposals of 100 bytes, 1,000 waiting together
    snapshot    a leader's whole state, fetched, checked and written, while it goes on serving

Three replicas are three processes, on their own streams and journals, with nothing above them; the snapshot
is of a cluster of three nodes. Prints a table and, as the last line, JSON. All processes share the machine's
cores.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Self, cast

import grpc.aio
import numpy as np
from rich.console import Console
from rich.table import Table

from tarry.bench import replica
from tarry.client.aio import connect
from tarry.client.local.cluster import LocalCluster
from tarry.client.local.free_ports import free_ports
from tarry.proto.tarry_peer_pb2 import FetchSnapshotRequest, FetchSnapshotResponse, SnapshotFile
from tarry.replication.blocking import in_thread
from tarry.replication.snapshot.state_files import StateSink
from tarry.replication.snapshot.state_folder import StateFolder
from tarry.replication.snapshot.transfer import fetch

STATE_BYTES = 128 << 20
BODY = bytes(64 << 10)
PROBE_PAUSE_S = 0.05

console = Console(stderr=True)


class Replicas:
    """Three replicas, each in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def __aenter__(self) -> Self:
        ports = free_ports(3)
        members = {f"n{number}": f"127.0.0.1:{port}" for number, port in enumerate(ports, 1)}
        for name in members:
            given = json.dumps([name, members, str(self._folder / name)])
            self._processes[name] = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tarry.bench.replication", given),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, "GRPC_VERBOSITY": "ERROR"},
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._processes.values():
            if process.stdin is not None:
                process.stdin.close()
        await asyncio.gather(*(process.wait() for process in self._processes.values()))

    async def ask(self, name: str, what: str) -> Any:
        process = self._processes[name]
        if process.stdin is None or process.stdout is None:
            raise RuntimeError(f"{name} has no pipes")
        process.stdin.write(json.dumps(what).encode() + b"\n")
        return json.loads(await process.stdout.readline())

    async def leader(self) -> str:
        while True:
            for name in self._processes:
                if await self.ask(name, "serves"):
                    return name
            await asyncio.sleep(0.05)

    async def commits(self) -> list[int]:
        return [await self.ask(name, "commits") for name in self._processes]


async def of_replicas(folder: Path) -> dict[str, float]:
    """Return what is measured on three replicas."""
    figures: dict[str, float] = {}
    async with Replicas(folder) as replicas:
        leader = await replicas.leader()
        await asyncio.sleep(1)
        for what in ("large", "thousand"):
            spent = []
            for _ in range(5):
                before = await replicas.commits()
                await replicas.ask(leader, what)
                await asyncio.sleep(0.3)  # the followers learn the commit
                after = await replicas.commits()
                spent.append(max(b - a for a, b in zip(before, after, strict=True)))
            figures |= kept({f"syncs_{what}": float(np.median(spent)), f"syncs_{what}_max": max(spent)})
        taken = await replicas.ask(leader, "lone")
        p50, p99 = np.percentile(taken, (50, 99))
        figures |= kept(
            {"commit_ms_min": min(taken), "commit_ms_p50": float(p50), "commit_ms_p99": float(p99)}
        )
        figures |= kept(await replicas.ask(leader, "small"))
        runs = [await replicas.ask(leader, "batches") for _ in range(3)]
        figures |= kept({name: float(np.median([run[name] for run in runs])) for name in runs[0]})
    return figures


async def of_snapshot(folder: Path) -> dict[str, float]:
    """Return how fast a leader's state is fetched, and what a producer sees meanwhile."""
    with LocalCluster(3, folder / "nodes") as cluster:
        cluster.start()
        leader = cluster.wait_until_serving()
        async with connect(cluster.addresses) as client:
            producer = client.producer()
            each = 32
            for _ in range(STATE_BYTES // len(BODY) // each):
                await producer.schedule_batch("state", [BODY] * each, delay_ms=3_600_000)
            taken: list[float] = []

            async def probe() -> None:
                while True:
                    start = time.perf_counter()
                    await producer.schedule("probe", b"x", delay_ms=3_600_000)
                    taken.append((time.perf_counter() - start) * 1_000)
                    await asyncio.sleep(PROBE_PAUSE_S)

            probing = asyncio.create_task(probe())
            start = time.perf_counter()
            follower = next(name for name in cluster.nodes if name != leader)
            size = await _fetch(cluster.nodes[leader].address, follower, folder / "fetched")
            seconds = time.perf_counter() - start
            await asyncio.sleep(0.5)
            probing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await probing
            return kept(
                {
                    "snapshot_mb_per_min": size / 1e6 / seconds * 60,
                    "snapshot_mb": size / 1e6,
                    "schedule_meanwhile_p50_ms": float(np.percentile(taken, 50)),
                    "schedule_meanwhile_max_ms": max(taken),
                }
            )


async def _fetch(address: str, follower: str, folder: Path) -> int:
    """Fetch a node's state as a follower does, up to the swap; return its bytes."""
    size = 0
    options = [("grpc.max_receive_message_length", 8 << 20)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        stream = channel.unary_stream(
            "/tarry.v1.PeerService/FetchSnapshot",
            FetchSnapshotRequest.SerializeToString,
            FetchSnapshotResponse.FromString,
        )

        async def parts(kept: Sequence[SnapshotFile]) -> AsyncIterator[FetchSnapshotResponse]:
            nonlocal size
            async for part in stream(FetchSnapshotRequest(cluster="tarry", node=follower, kept=kept)):
                size += len(part.chunk.data)
                yield part

        await fetch(parts, StateSink(cast("Any", None), StateFolder(folder)), in_thread)
    return size


def kept(values: dict[str, float]) -> dict[str, float]:
    """Show figures, and return them."""
    console.print("  " + "  ".join(f"{name} {value:,.2f}" for name, value in values.items()))
    return values


def main() -> None:
    """Run it all; with an argument, one replica."""
    if len(sys.argv) > 1:
        asyncio.run(replica.run(*json.loads(sys.argv[1])))
        return
    console.print(f"three processes on {os.cpu_count()} cores")
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="tarry-bench-") as folder:
        for measure in (of_replicas, of_snapshot):
            figures.update(asyncio.run(measure(Path(folder))))
    table = Table("figure", "value")
    for name, value in figures.items():
        table.add_row(name, f"{value:,.2f}")
    Console().print(table)
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
