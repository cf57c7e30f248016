"""Leadership that changes hands again and again under load: what is repeated, and what is lost.

    python -m tarry.chaos.handover --rate 5000 --transfers 50 --kills 50

Producers and two consumers of one group write down every message in columns. A duplicate is a
token received again, and belongs to the fault before that. Its bound after a transfer is none; after a
kill, what was received from 50 ms before it, with what was then still on its way from the dead leader.
Exit code 1 where a promise is broken. The last line is JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from tarry.chaos.cluster import Cluster, now_ms
from tarry.client.aio import Client, connect

TOPIC, GROUP = "handover", "workers"
BODY = np.dtype([("token", "<u8"), ("rest", "V92")])  # 100 bytes
WINDOW_MS = 50
ON_ITS_WAY_MS = 100  # an election takes longer
DELAY_MS_MAX = 1_500
TURN_S = 0.02
STEADY_S = 1.0
PATIENCE_S = 60.0

console = Console(stderr=True)


@dataclass(slots=True)
class Record:
    """What was sent and received, in columns."""

    sent: list[range] = field(default_factory=list)  # acknowledged
    tokens: list[NDArray[np.uint64]] = field(default_factory=list)
    received_ms: list[NDArray[np.int64]] = field(default_factory=list)
    due_ms: list[NDArray[np.int64]] = field(default_factory=list)
    faults_ms: list[int] = field(default_factory=list)
    pauses_ms: list[int] = field(default_factory=list)
    failovers_ms: list[int] = field(default_factory=list)
    stop: bool = False

    def received(self) -> int:
        """Return how many different tokens have been received."""
        return len(np.unique(np.concatenate(self.tokens))) if self.tokens else 0

    @property
    def told(self) -> str:
        """Progress, in words."""
        return f"{self.acknowledged():,} scheduled, {sum(map(len, self.tokens)):,} received"

    def acknowledged(self) -> int:
        """Return how many were acknowledged to the producer."""
        return sum(map(len, self.sent))


@dataclass(frozen=True, slots=True)
class Result:
    """The last line."""

    transfers: int
    kills: int
    acknowledged: int
    received: int
    lost: int
    early: int
    duplicates: int
    duplicates_bound: int
    duplicates_beyond: int  # their bound, fault by fault
    transfer_pause_p50_ms: int
    transfer_pause_max_ms: int
    failover_p50_ms: int
    failover_max_ms: int
    seconds: float

    @property
    def kept(self) -> bool:
        """Whether every promise was."""
        return not (self.lost or self.early or self.duplicates_beyond)


async def produce(client: Client, record: Record, rate: int) -> None:
    """Schedule so many a second, due within 1.5 s at random, until told to stop."""
    producer = client.producer()
    chance = np.random.default_rng(1)

    async def send(tokens: range) -> None:
        due_ms = now_ms() + chance.integers(0, DELAY_MS_MAX, len(tokens))
        bodies = np.zeros(len(tokens), dtype=BODY)
        bodies["token"] = tokens
        await producer.schedule_batch(TOPIC, [body.tobytes() for body in bodies], due_ms=due_ms)
        record.sent.append(tokens)

    token, started = 0, time.monotonic()
    async with asyncio.TaskGroup() as sending:
        while not record.stop:
            wanted = int((time.monotonic() - started) * rate)
            if wanted > token:
                sending.create_task(send(range(token, wanted)))
                token = wanted
            await asyncio.sleep(TURN_S)


async def consume(client: Client, record: Record, name: str, *, dedupe: bool) -> None:
    """Take batches and acknowledge them, until cancelled."""
    async with client.consumer(TOPIC, GROUP, name=name, credit=10_000, dedupe=dedupe) as consumer:
        async for batch in consumer.batches():
            record.tokens.append(np.frombuffer(b"".join(batch.bodies), dtype=BODY)["token"])
            record.received_ms.append(np.full(len(batch), batch.received_ms))
            record.due_ms.append(batch.due_ms)
            batch.ack_soon()


async def transfer_often(cluster: Cluster, client: Client, record: Record, times: int) -> None:
    """Hand leadership over so many times."""
    operator = client.operator()
    for number in range(times):
        await asyncio.sleep(STEADY_S)
        await cluster.serving()
        record.faults_ms.append(now_ms())
        done = await operator.transfer()
        record.pauses_ms.append(done.pause_ms)
        console.print(f"transfer {number + 1} of {times}: {done.pause_ms} ms, {record.told}")


async def kill_often(cluster: Cluster, record: Record, times: int) -> None:
    """Kill the leader so many times; it comes back each time, and catches up, before the next."""
    for number in range(times):
        await asyncio.sleep(STEADY_S)
        leader = await cluster.serving(PATIENCE_S)
        killed = cluster.kill(leader)
        record.faults_ms.append(killed.at_ms)
        place = len(record.received_ms)
        async with asyncio.timeout(PATIENCE_S):
            while not any(at[0] > killed.at_ms + ON_ITS_WAY_MS for at in record.received_ms[place:]):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        record.failovers_ms.append(int(record.received_ms[-1][0]) - killed.at_ms)
        cluster.start(leader)
        console.print(f"kill {number + 1} of {times}: {record.failovers_ms[-1]} ms, {record.told}")


def repeats(tokens: NDArray[np.uint64], received: NDArray[np.int64], faults_ms: list[int]) -> list[int]:
    """Return how many tokens were received again after each fault, and before the next."""
    first = np.zeros(len(tokens), dtype=np.bool_)
    first[np.unique(tokens, return_index=True)[1]] = True
    fault = np.searchsorted(np.array(faults_ms), received[~first], side="right") - 1
    counts: list[int] = np.bincount(np.maximum(fault, 0), minlength=len(faults_ms)).tolist()
    return counts


def judge(record: Record, kills: int, seconds: float, *, dedupe: bool) -> Result:
    """Return what was kept and what was broken; with ``dedupe`` nothing may be repeated at all."""
    tokens, received = np.concatenate(record.tokens), np.concatenate(record.received_ms)
    due = np.concatenate(record.due_ms)
    distinct = np.unique(tokens)
    sent = np.concatenate([np.arange(part.start, part.stop) for part in record.sent])
    again = repeats(tokens, received, record.faults_ms)
    bounds = [0] * (len(record.faults_ms) - kills)
    bounds += [
        0 if dedupe else int(((received >= f - WINDOW_MS) & (received <= f + ON_ITS_WAY_MS)).sum())
        for f in record.faults_ms[len(bounds) :]
    ]
    pauses, failovers = record.pauses_ms or [0], record.failovers_ms or [0]
    return Result(
        transfers=len(record.pauses_ms),
        kills=kills,
        acknowledged=len(sent),
        received=len(distinct),
        lost=len(np.setdiff1d(sent, distinct)),
        early=int((received < due).sum()),
        duplicates=len(tokens) - len(distinct),
        duplicates_bound=sum(bounds),
        duplicates_beyond=sum(max(0, n - bound) for n, bound in zip(again, bounds, strict=True)),
        transfer_pause_p50_ms=int(np.median(pauses)),
        transfer_pause_max_ms=max(pauses),
        failover_p50_ms=int(np.median(failovers)),
        failover_max_ms=max(failovers),
        seconds=round(seconds, 1),
    )


async def run(rate: int, transfers: int, kills: int, *, dedupe: bool, folder: Path) -> Result:
    """Do it all on a cluster of three."""
    record = Record()
    started = time.monotonic()
    async with (
        Cluster(3, folder) as cluster,
        connect(cluster.addresses) as client,
        asyncio.TaskGroup() as tasks,  # whatever fails ends the run
    ):
        consumers = [tasks.create_task(consume(client, record, name, dedupe=dedupe)) for name in "ab"]
        producer = tasks.create_task(produce(client, record, rate))
        await transfer_often(cluster, client, record, transfers)
        await kill_often(cluster, record, kills)
        await asyncio.sleep(STEADY_S)
        record.stop = True
        await producer
        until = time.monotonic() + PATIENCE_S
        while record.received() < record.acknowledged() and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        await asyncio.sleep(STEADY_S)  # for a duplicate that is still on its way
        for task in consumers:
            task.cancel()
    return judge(record, kills, time.monotonic() - started, dedupe=dedupe)


def main(
    rate: Annotated[int, typer.Option(min=1, help="Messages a second.")] = 5_000,
    transfers: Annotated[int, typer.Option(min=0, help="Planned transfers, one after another.")] = 50,
    kills: Annotated[int, typer.Option(min=0, help="SIGKILLs of the leader.")] = 50,
    dedupe: Annotated[bool, typer.Option(help="Let the consumers keep repetitions back.")] = False,
) -> None:
    """Change leaders under load; exit code 1 where a promise is broken."""
    with tempfile.TemporaryDirectory(prefix="tarry-handover-") as folder:
        result = asyncio.run(run(rate, transfers, kills, dedupe=dedupe, folder=Path(folder)))
    print(json.dumps({name: getattr(result, name) for name in Result.__slots__}))
    sys.exit(0 if result.kept else 1)


if __name__ == "__main__":
    typer.run(main)
