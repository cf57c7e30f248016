"""Repeated and lost messages while leadership changes again and again under load.

    python -m tarry.chaos.leader_changes --rate 5000 --transfers 50 --kills 50

A producer and two groups of two consumers each, one group with dedupe, write down every message in columns.
Beside them schedules that recur fire each second; a fire with two messages or none breaks a promise.
A duplicate is a token that a group receives again, and belongs to the fault before that. Its bound after a
transfer is none; after a kill, what the group received from 50 ms before it on, as long as it came from the
leader that was killed; with dedupe, none. Each says that it may be one. Exit code 1 where a promise is
broken. The last line is JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from tarry.chaos.checks import fires as fire_checks
from tarry.chaos.checks.duplicates import unmarked_rows
from tarry.chaos.cluster.cluster import Cluster, now_ms
from tarry.chaos.history import Fires
from tarry.chaos.traffic.recurring import Firing
from tarry.client.aio import Client, connect

TOPIC = "leader_changes"
BODY = np.dtype([("token", "<u8"), ("rest", "V92")])  # 100 bytes
WINDOW_MS = 50
DELAY_MS_MAX = 1_500
TURN_S = 0.02
STEADY_S = 1.0
PATIENCE_S = 60.0

WRONG_FIRES = (
    fire_checks.lost,
    fire_checks.early,
    fire_checks.of_no_fire,
    fire_checks.miscounted,
    fire_checks.overlapping,
)

console = Console(stderr=True)


RECEIPT = np.dtype(
    [("token", "<u8"), ("received_ms", "<i8"), ("due_ms", "<i8"), ("term", "<i8"), ("marked", "?")]
)
"""A delivery: the term is the leader's that delivered; marked: as what may be a repetition."""


@dataclass(slots=True)
class Receipts:
    """Deliveries to a group, an array of RECEIPT a batch."""

    batches: list[NDArray[np.void]] = field(default_factory=list)
    dropped: int = 0  # withheld by dedupe

    def all(self) -> NDArray[np.void]:
        """Return all deliveries, in the order in which they came."""
        return np.concatenate([np.empty(0, RECEIPT), *self.batches])

    def distinct(self) -> NDArray[np.uint64]:
        """Return the tokens received, each once."""
        return np.unique(self.all()["token"])


@dataclass(slots=True)
class Record:
    """Messages sent, messages received, and faults of a run."""

    plain: Receipts = field(default_factory=Receipts)
    dedupe: Receipts = field(default_factory=Receipts)
    sent: list[range] = field(default_factory=list)  # acknowledged
    faults_ms: list[int] = field(default_factory=list)
    fault_terms: list[int] = field(default_factory=list)  # of the leader that each befell
    pauses_ms: list[int] = field(default_factory=list)
    failovers_ms: list[int] = field(default_factory=list)
    fires: Fires = field(default_factory=Fires)
    stop: bool = False

    @property
    def told(self) -> str:
        """Progress, in words."""
        return f"{self.acknowledged():,} scheduled, {sum(map(len, self.plain.batches)):,} received"

    def acknowledged(self) -> int:
        """Return how many were acknowledged to the producer."""
        return sum(map(len, self.sent))

    def complete(self) -> bool:
        """Return whether both groups have received all that."""
        return min(len(self.plain.distinct()), len(self.dedupe.distinct())) >= self.acknowledged()


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
    unmarked: int
    duplicates_with_dedupe: int
    dropped_by_dedupe: int
    transfer_pause_p50_ms: int
    transfer_pause_max_ms: int
    failover_p50_ms: int
    failover_max_ms: int
    fires: int  # planned
    fires_doubled: int
    fires_left_out: int
    fires_wrong: int  # lost, early, at a time that is no fire's, or beside the one before
    seconds: float

    @property
    def kept(self) -> bool:
        """True if every promise was kept."""
        return not (
            self.lost or self.early or self.duplicates_beyond or self.unmarked or self.duplicates_with_dedupe
            or self.fires_doubled or self.fires_left_out or self.fires_wrong
        )  # fmt: skip


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


async def consume(client: Client, group: str, name: str, receipts: Receipts, *, dedupe: bool) -> None:
    """Take batches and acknowledge them, until cancelled."""
    async with client.consumer(TOPIC, group, name=name, credit=10_000, dedupe=dedupe) as consumer:
        try:
            async for batch in consumer.batches():
                rows = np.empty(len(batch), RECEIPT)
                rows["token"] = np.frombuffer(b"".join(batch.bodies), dtype=BODY)["token"]
                rows["received_ms"], rows["due_ms"] = batch.received_ms, batch.due_ms
                rows["term"] = batch.stamp.term
                rows["marked"] = (batch.attempts > 1) | batch.maybe_duplicates
                receipts.batches.append(rows)
                batch.ack_soon()
        finally:
            receipts.dropped += consumer.duplicates_dropped


async def transfer_often(cluster: Cluster, client: Client, record: Record, times: int) -> None:
    """Hand leadership over so many times."""
    operator = client.operator()
    for number in range(times):
        await asyncio.sleep(STEADY_S)
        await cluster.serving(PATIENCE_S)
        record.fault_terms.append(await cluster.term())
        record.faults_ms.append(now_ms())
        done = await operator.transfer()
        record.pauses_ms.append(done.pause_ms)
        console.print(f"transfer {number + 1} of {times}: {done.pause_ms} ms, {record.told}")


async def kill_often(cluster: Cluster, record: Record, times: int) -> None:
    """Kill the leader so many times; it comes back each time, and catches up, before the next."""
    for number in range(times):
        await asyncio.sleep(STEADY_S)
        leader, term = await cluster.serving(PATIENCE_S), await cluster.term()
        killed = cluster.kill(leader)
        record.fault_terms.append(term)
        record.faults_ms.append(killed.at_ms)
        async with asyncio.timeout(PATIENCE_S):
            while not (record.plain.batches and record.plain.batches[-1]["term"][0] > term):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        record.failovers_ms.append(int(record.plain.batches[-1]["received_ms"][0]) - killed.at_ms)
        cluster.start(leader)
        console.print(f"kill {number + 1} of {times}: {record.failovers_ms[-1]} ms, {record.told}")


def repeats(rows: NDArray[np.void], faults_ms: list[int]) -> NDArray[np.int64]:
    """Return how many tokens were received again after each fault, and before the next."""
    again = np.delete(rows, np.unique(rows["token"], return_index=True)[1])
    fault = np.searchsorted(np.array(faults_ms), again["received_ms"], side="right") - 1
    return np.bincount(np.maximum(fault, 0), minlength=len(faults_ms))


def unmarked(rows: NDArray[np.void]) -> int:
    """Return how many messages were repeated without a mark."""
    return len(unmarked_rows(rows["token"], rows["term"], rows["marked"]))


def bounds(record: Record, kills: int) -> NDArray[np.int64]:
    """Return how many may be received again after each fault; the kills are the last of them."""
    rows = record.plain.all()
    received, term = rows["received_ms"], rows["term"]
    faults = list(zip(record.faults_ms, record.fault_terms, strict=True))
    transfers = len(faults) - kills
    last = [int(((received >= at_ms - WINDOW_MS) & (term <= led)).sum()) for at_ms, led in faults[transfers:]]
    return np.array([0] * transfers + last, dtype=np.int64)


def judge(record: Record, kills: int, seconds: float) -> Result:
    """Return what was kept and what was broken."""
    sent = np.concatenate([np.arange(part.start, part.stop) for part in record.sent])
    plain, dedupe = groups = record.plain.all(), record.dedupe.all()
    again, bound = repeats(plain, record.faults_ms), bounds(record, kills)
    pauses, failovers = record.pauses_ms or [0], record.failovers_ms or [0]
    return Result(
        transfers=len(record.pauses_ms),
        kills=kills,
        acknowledged=len(sent),
        received=len(record.plain.distinct()),
        lost=sum(len(np.setdiff1d(sent, rows["token"])) for rows in groups),
        early=sum(int((rows["received_ms"] < rows["due_ms"]).sum()) for rows in groups),
        duplicates=int(again.sum()),
        duplicates_bound=int(bound.sum()),
        duplicates_beyond=int(np.maximum(again - bound, 0).sum()),
        unmarked=sum(map(unmarked, groups)),
        duplicates_with_dedupe=int(repeats(dedupe, record.faults_ms).sum()),
        dropped_by_dedupe=record.dedupe.dropped,
        transfer_pause_p50_ms=int(np.median(pauses)),
        transfer_pause_max_ms=max(pauses),
        failover_p50_ms=int(np.median(failovers)),
        failover_max_ms=max(failovers),
        fires=sum(len(plan.times_ms()) for plan in record.fires.planned),
        fires_doubled=len(fire_checks.doubled(record.fires)),
        fires_left_out=len(fire_checks.left_out(record.fires)),
        fires_wrong=sum(len(check(record.fires)) for check in WRONG_FIRES),
        seconds=round(seconds, 1),
    )


async def run(rate: int, transfers: int, kills: int, folder: Path) -> Result:
    """Do it all on a cluster of three."""
    record = Record()
    started = time.monotonic()
    async with (
        Cluster(3, folder) as cluster,
        connect(cluster.addresses) as client,
        asyncio.TaskGroup() as tasks,  # whatever fails ends the run
    ):
        consumers = [
            tasks.create_task(consume(client, group, name, receipts, dedupe=receipts is record.dedupe))
            for group, receipts in (("plain", record.plain), ("dedupe", record.dedupe))
            for name in "ab"
        ]
        await client.operator().finish_upgrade()
        producer = tasks.create_task(produce(client, record, rate))
        firing = Firing(client, record.fires)
        async with firing.going_on():
            await transfer_often(cluster, client, record, transfers)
            await kill_often(cluster, record, kills)
            await asyncio.sleep(STEADY_S)
            await firing.end()
        record.stop = True
        await producer
        until = time.monotonic() + PATIENCE_S
        while not record.complete() and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        await asyncio.sleep(STEADY_S)  # for a duplicate that is still on its way
        for task in consumers:
            task.cancel()
    for check in (fire_checks.doubled, fire_checks.left_out, *WRONG_FIRES):
        for found in check(record.fires):
            console.print(f"{check.__name__}: {found}", markup=False)
    return judge(record, kills, time.monotonic() - started)


def main(
    rate: Annotated[int, typer.Option(min=1, help="Messages a second.")] = 5_000,
    transfers: Annotated[int, typer.Option(min=0, help="Planned transfers, one after another.")] = 50,
    kills: Annotated[int, typer.Option(min=0, help="SIGKILLs of the leader.")] = 50,
) -> None:
    """Change leaders under load; exit code 1 where a promise is broken."""
    with tempfile.TemporaryDirectory(prefix="tarry-leader-changes-") as folder:
        result = asyncio.run(run(rate, transfers, kills, Path(folder)))
    print(json.dumps(asdict(result)))
    sys.exit(0 if result.kept else 1)


if __name__ == "__main__":
    typer.run(main)
