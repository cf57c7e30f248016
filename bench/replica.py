"""One replica in a process of its own, with nothing above it, for bench/replication.py to measure."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import grpc.aio

from tarry.replication.clock import SystemClock
from tarry.replication.driver.driver import Driver
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.records import Batch
from tarry.replication.journal.write_ahead_log import WriteAheadLog
from tarry.replication.settings import ReplicationSettings
from tarry.replication.transport.grpc_options import server_options
from tarry.replication.transport.peer_transport import PeerTransport

BATCH_MESSAGES = 1_000
BATCH_BYTES = 120 * BATCH_MESSAGES  # records of 100 bytes, and their columns
BATCHES = 400
BATCHES_IN_FLIGHT = 4
SMALL_ROUNDS = 20
LONE = 200
LONE_PAUSE_S = 0.02


class Nothing:
    """A machine that applies nothing."""

    applied_index = 0

    def apply(self, index: int, term: int, commands: Sequence[bytes]) -> Sequence[None]:
        self.applied_index = index
        return [None] * len(commands)


class Counted(WriteAheadLog):
    """A journal that counts its commits."""

    commits = 0

    def write(self, batch: Batch) -> None:
        self.commits += 1
        super().write(batch)


class Replica:
    """One replica in this process, which does what its standard input says, a JSON line each."""

    def __init__(self, name: str, members: dict[str, str], folder: Path) -> None:
        settings = ReplicationSettings()
        self._address = members[name]
        self._storage = Counted(folder)
        self._transport = PeerTransport(settings=settings, rng=random.Random())
        self._server = grpc.aio.server(options=server_options(settings))
        self._server.add_generic_rpc_handlers((self._transport.servicer.handler(),))
        self._driver = Driver(
            node=name,
            members=members,
            journal=Journal(self._storage, incarnation=random.getrandbits(63)),
            machine=Nothing(),
            transport=self._transport,
            clock=SystemClock(),
            rng=random.Random(),
            settings=settings,
            heartbeat=lambda sent: b"",
            on_heartbeat=lambda leader, state: None,
            on_role=lambda role: None,
        )

    async def run(self) -> None:
        self._server.add_insecure_port(self._address)
        await self._transport.listen("127.0.0.1")
        await self._server.start()
        running = asyncio.create_task(self._driver.run())
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            answer = await getattr(self, json.loads(line))()
            print(json.dumps(answer), flush=True)
        await self._driver.stop()
        await running
        await self._server.stop(None)

    async def serves(self) -> bool:
        return self._driver.may_serve()

    async def commits(self) -> int:
        return self._storage.commits

    async def large(self) -> None:
        await self._driver.propose(random.randbytes(1 << 20))

    async def thousand(self) -> None:
        await asyncio.gather(*(self._driver.propose(b"%100d" % number) for number in range(1_000)))

    async def small(self) -> dict[str, float]:
        await self.thousand()
        process = time.process_time()
        for _ in range(SMALL_ROUNDS):
            await self.thousand()
        return {"leader_small_us": (time.process_time() - process) / (SMALL_ROUNDS * 1_000) * 1e6}

    async def lone(self) -> list[float]:
        taken = []
        for _ in range(LONE):
            await asyncio.sleep(LONE_PAUSE_S)
            start = time.perf_counter()
            await self._driver.propose(bytes(100))
            taken.append((time.perf_counter() - start) * 1_000)
        return taken

    async def batches(self) -> dict[str, float]:
        command = random.randbytes(BATCH_BYTES)
        left = iter(range(BATCHES))

        async def worker() -> None:
            for _ in left:
                await self._driver.propose(command)

        wall, process, loop = time.perf_counter(), time.process_time(), time.thread_time()
        await asyncio.gather(*(worker() for _ in range(BATCHES_IN_FLIGHT)))
        messages = BATCHES * BATCH_MESSAGES
        return {
            "leader_us": (time.process_time() - process) / messages * 1e6,
            "leader_loop_us": (time.thread_time() - loop) / messages * 1e6,
            "messages_per_s": messages / (time.perf_counter() - wall),
        }


async def run(name: str, members: dict[str, str], folder: str) -> None:
    """Run a replica until its standard input ends."""
    await Replica(name, members, Path(folder)).run()
