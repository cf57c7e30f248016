"""Schedules that recur, 100,000 of them and far away: what they cost three nodes that do nothing.

    python -m tarry.bench.recurring [--schedules 100000] [--seconds 30] [--windows 5]

The CPU of idle nodes is measured without schedules and with them, in several windows each, for it is as small
as what changes from window to window: the median, the least and the most are told. Then come the time until a
new leader serves, and how late fires come: a thousandth of the schedules fires at one second. The last line
is JSON.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Awaitable
from typing import Annotated, Any, Final

import grpc
import typer
from rich.console import Console

from tarry.bench.nodes import idle_cpu_percent, in_flight, rss_bytes, serving
from tarry.client.aio import connect
from tarry.client.local.cluster import LocalCluster
from tarry.proto import tarry_recurring_pb2 as pb
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_recurring_pb2_grpc import RecurringServiceStub

AT_ONCE: Final = 64
DEADLINE_S: Final = 60.0
SOON_MS: Final = 5_000
QUIET_S: Final = 15.0
"""Until what was created is in checkpoints, and the leader is quiet."""

console = Console(stderr=True, highlight=False)


async def filled(cluster: LocalCluster, schedules: int) -> float:
    """Create nightly schedules in several zones; return how many a second."""
    zones = ("Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe")
    address = cluster.nodes[cluster.wait_until_serving()].address
    begun = time.perf_counter()
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = RecurringServiceStub(channel)

        def put(number: int) -> Awaitable[object]:
            spec = pb.RecurringSpec(
                topic="nightly",
                record=Record(body=b"x" * 100),
                cron=f"{number % 60} {number % 24} 1 1 *",
                zone=zones[number % len(zones)],
            )
            request = pb.PutRecurringRequest(name=f"s{number}", spec=spec)
            call: Awaitable[object] = stub.PutRecurring(request, timeout=DEADLINE_S)
            return call

        await in_flight((put(number) for number in range(schedules)), AT_ONCE)
    return schedules / (time.perf_counter() - begun)


async def lateness_ms(cluster: LocalCluster, count: int) -> list[float]:
    """Have so many schedules fire at one second; return how late their messages are delivered, sorted."""
    start_ms = time.time_ns() // 1_000_000 + SOON_MS
    address = cluster.nodes[cluster.wait_until_serving()].address
    late_ms: list[float] = []
    async with grpc.aio.insecure_channel(address) as channel, connect(cluster.addresses) as client:
        stub: Any = RecurringServiceStub(channel)

        def put(number: int) -> Awaitable[object]:
            spec = pb.RecurringSpec(
                topic="soon", interval_ms=86_400_000, start_ms=start_ms, end_ms=start_ms + 1
            )
            request = pb.PutRecurringRequest(name=f"soon{number}", spec=spec)
            call: Awaitable[object] = stub.PutRecurring(request, timeout=DEADLINE_S)
            return call

        await in_flight((put(number) for number in range(count)), AT_ONCE)
        async with client.consumer("soon", "bench", start="earliest", credit=10_000) as consumer:
            async for message in consumer:
                late_ms.append(time.time_ns() / 1e6 - message.due_ms)
                message.ack_soon()
                if len(late_ms) == count:
                    return sorted(late_ms)
    raise RuntimeError("the consumer ended early")


def idle_percent(cluster: LocalCluster, seconds: float, windows: int) -> dict[str, float]:
    """Return the median, the least and the most of what idle nodes use, in percent of a core."""
    found = sorted(idle_cpu_percent(cluster, seconds) for _ in range(windows))
    told = {"p50": statistics.median(found), "min": found[0], "max": found[-1]}
    return {name: round(value, 2) for name, value in told.items()}


async def measure(cluster: LocalCluster, schedules: int, seconds: float, windows: int) -> dict[str, Any]:
    """Return the figures of one cluster; of its schedules, as many as nodes take, some are made last."""
    soon = max(1, schedules // 1_000)
    console.print("idle nodes are measured")
    idle = {"before_percent": idle_percent(cluster, seconds, windows)}
    memory = rss_bytes(cluster)
    console.print(f"{schedules:,} schedules are created")
    per_s = await filled(cluster, schedules - soon)
    await asyncio.sleep(QUIET_S)
    console.print("idle nodes are measured with them")
    idle["with_schedules_percent"] = idle_percent(cluster, seconds, windows)
    grown = rss_bytes(cluster) - memory
    leader = cluster.wait_until_serving()
    cluster.kill(leader)
    begun = time.perf_counter()
    cluster.wait_until_serving()
    failover_s = time.perf_counter() - begun
    cluster.start(leader)
    late = await lateness_ms(cluster, soon)
    return {
        "schedules": schedules,
        "created_per_s": round(per_s),
        "idle": idle,
        "memory_bytes_per_schedule": round(grown / schedules),
        "failover_s": round(failover_s, 2),
        "late_ms": {"p50": round(late[len(late) // 2], 1), "max": round(late[-1], 1)},
    }


def main(
    schedules: Annotated[int, typer.Option(help="How many.", min=2)] = 100_000,
    seconds: Annotated[float, typer.Option(help="For which idle nodes are measured.", min=1)] = 30.0,
    windows: Annotated[int, typer.Option(help="In which they are measured, each so long.", min=1)] = 5,
) -> None:
    """Measure, and print the figures as JSON."""
    with serving(3) as cluster:
        time.sleep(QUIET_S)  # the level is raised, and the leader quiet
        print(json.dumps(asyncio.run(measure(cluster, schedules, seconds, windows))))


if __name__ == "__main__":
    typer.run(main)
