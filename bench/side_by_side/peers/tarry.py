"""tarry: three nodes, as `tarry dev` runs them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from tarry.bench.side_by_side.servers import folder_bytes, memory_bytes
from tarry.bench.side_by_side.system import DueMs, Durability, System, Take
from tarry.client.aio import CancelOutcome, Client, ClusterStatus, Producer, ScheduledBatch, connect
from tarry.client.local.cluster import LocalCluster
from tarry.proto.version import VERSION

CREDIT = 100_000


class Tarry(System):
    """Schedules through one producer; its own client gathers what many tasks schedule."""

    name = "tarry"
    durability = Durability(3, True, "as shipped: fsync on a majority before the answer")
    cancels = True
    fails_over = True
    fewer_when_slow = False  # the figure is promised for all of them

    def missing(self) -> str:
        return ""

    def version(self) -> str:
        return VERSION

    async def start(self, folder: Path) -> None:
        self._cluster = LocalCluster(3, folder)
        self._cluster.start()
        self._cluster.wait_until_serving()
        self._client: Client = connect(self._cluster.addresses)
        self._producer: Producer = self._client.producer()
        self._kept: dict[str, list[ScheduledBatch]] = {}

    async def stop(self) -> None:
        await self._client.close()
        self._cluster.close()

    async def open(self, lane: str) -> None:
        self._kept[lane] = []

    async def schedule_batch(self, lane: str, bodies: list[bytes], due_ms: DueMs) -> None:
        self._kept[lane].append(await self._producer.schedule_batch(lane, bodies, due_ms=due_ms))

    async def schedule(self, lane: str, body: bytes, due_ms: int) -> None:
        await self._producer.schedule(lane, body, due_ms=due_ms)

    async def pending(self) -> int:
        """Return what all nodes agree on: one that has yet to apply what was acknowledged counts less."""
        while True:
            answers = (await self._client.operator().status_of_all()).values()
            told = [answer for answer in answers if isinstance(answer, ClusterStatus)]
            if len({(answer.applied_index, answer.pending) for answer in told}) == 1:
                return told[0].pending
            await asyncio.sleep(0.05)

    async def peek(self, lane: str, count: int) -> list[bytes]:
        kept = self._kept[lane]
        ids = [message_id for batch in (kept[:1] + kept[-1:]) for message_id in batch.ids]
        some = ids[:: max(1, len(ids) // count)]
        return [found.body for found in await asyncio.gather(*map(self._producer.get, some))]

    async def receive(self, lane: str, take: Take) -> None:
        async with self._client.consumer(lane, "bench", credit=CREDIT) as consumer:
            answers = []
            async for batch in consumer.batches():
                done = take(list(batch.bodies))
                answers.append(batch.ack())
                if done:
                    await asyncio.gather(*answers)
                    return

    async def cancel(self, lane: str, count: int) -> int:
        cancelled = 0
        for batch in self._kept[lane]:
            outcomes = await self._producer.cancel_many(batch.ids)
            cancelled += outcomes.count(CancelOutcome.CANCELLED)
            if cancelled >= count:
                break
        return cancelled

    def processes(self) -> Mapping[str, Sequence[int]]:
        leader = self._cluster.wait_for_leader()
        running = {name: node.process.pid for name, node in self._cluster.nodes.items() if node.process}
        followers = [pid for name, pid in running.items() if name != leader]
        return {"leader": [running[leader]], "followers": followers}

    def pids(self) -> dict[str, int]:
        """Return the process of the leader and of one follower."""
        found = self.processes()
        return {"leader": found["leader"][0], "follower": found["followers"][0]}

    def memory_bytes(self) -> int:
        return max(memory_bytes(node.process.pid) for node in self._cluster.nodes.values() if node.process)

    async def disk_bytes(self) -> int:
        hours = (self._cluster.folder / "n1").glob("state-*/hours")
        return sum(map(folder_bytes, hours))

    async def kill_leader(self) -> None:
        self._killed = self._cluster.wait_for_leader()
        self._cluster.kill(self._killed)

    async def mend(self) -> None:
        """Bring the killed node back."""
        self._cluster.start(self._killed)
        self._cluster.wait_until_serving()

    async def halt(self) -> None:
        await asyncio.gather(*(asyncio.to_thread(self._cluster.stop, name) for name in self._cluster.nodes))

    async def resume(self) -> None:
        self._cluster.start()
        self._cluster.wait_until_serving(120)
