"""Delivery from one topic: how much one Python consumer takes, and how evenly two share.

    python -m tarry.bench.delivery --messages 300000

Three real nodes and one client process on this machine. The messages are due already when their group is
moved to the first of them; each is received, and acknowledged with its batch. The last line is JSON.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console

from tarry.bench.nodes import cpu_s, in_flight, serving
from tarry.client.aio import Client, connect
from tarry.client.local.cluster import LocalCluster

BATCH = 1_000
TOPIC = "delivery"
CREDIT = 10_000

console = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class Drained:
    """Figures of one group that received all messages of the topic."""

    per_s: float
    client_us: float  # CPU of this process, a message
    leader_us: float  # CPU of the node that spent most, a message
    shares: list[float]  # of each consumer, 1 being an equal part


async def fill(client: Client, messages: int, body: bytes) -> None:
    """Schedule the messages, due at once, some requests in flight."""
    producer = client.producer()
    batches = range(messages // BATCH)
    await in_flight((producer.schedule_batch(TOPIC, [body] * BATCH, delay_ms=0) for _ in batches), 4)


async def drain(client: Client, cluster: LocalCluster, consumers: int, messages: int) -> Drained:
    """Have a new group take everything; time it until its last acknowledgement is answered."""
    group = f"of-{consumers}-{time.monotonic_ns()}"
    members = [client.consumer(TOPIC, group, credit=CREDIT, start="latest") for _ in range(consumers)]
    counts = [0] * consumers
    taken = asyncio.Event()

    async def take(number: int) -> None:
        async for batch in members[number].batches():
            counts[number] += len(batch)
            batch.ack_soon()
            if sum(counts) >= messages:
                taken.set()

    for member in members:
        await member.start()
    cpu, own, started = cpu_s(cluster), time.process_time(), time.perf_counter()
    tasks = [asyncio.create_task(take(number)) for number in range(consumers)]
    await client.operator().seek_group(TOPIC, group, "earliest")  # all of them begin at once
    await taken.wait()
    await asyncio.gather(*(member.close() for member in members), *tasks)
    seconds, own = time.perf_counter() - started, time.process_time() - own
    spent = max(after - before for before, after in zip(cpu, cpu_s(cluster), strict=True))
    return Drained(
        per_s=round(messages / seconds),
        client_us=round(own / messages * 1e6, 2),
        leader_us=round(spent / messages * 1e6, 2),
        shares=[round(count * consumers / messages, 3) for count in counts],
    )


async def measure(cluster: LocalCluster, messages: int, body_bytes: int, turns: int) -> dict[str, object]:
    """Return the figures, from as many turns each."""
    async with connect(cluster.addresses) as client:
        console.print(f"scheduling {messages:,} messages of {body_bytes} bytes")
        await fill(client, messages, bytes(body_bytes))
        runs: dict[int, list[Drained]] = {1: [], 2: []}
        for consumers, drained in runs.items():
            for _ in range(turns):
                drained.append(await drain(client, cluster, consumers, messages))
                console.print(f"{consumers} consumers: {drained[-1]}", soft_wrap=True)
    rates = sorted(run.per_s for run in runs[1])
    return {
        "messages": messages,
        "body_bytes": body_bytes,
        "one_per_s_min": rates[0],
        "one_per_s": rates[len(rates) // 2],
        "one_per_s_max": rates[-1],
        "one_client_us": min(run.client_us for run in runs[1]),
        "one_leader_us": min(run.leader_us for run in runs[1]),
        "two_per_s": max(run.per_s for run in runs[2]),
        "two_share_off_max": round(max(abs(share - 1) for run in runs[2] for share in run.shares), 3),
    }


def main(
    messages: Annotated[int, typer.Option(min=BATCH, help="Of the topic; in thousands.")] = 300_000,
    body_bytes: Annotated[int, typer.Option(min=0, help="Of each message.")] = 100,
    turns: Annotated[int, typer.Option(min=1, help="With one consumer, and with two.")] = 3,
) -> None:
    """Measure delivery; the last line is JSON."""
    messages -= messages % BATCH
    with serving() as cluster:
        print(json.dumps(asyncio.run(measure(cluster, messages, body_bytes, turns))))


if __name__ == "__main__":
    typer.run(main)
