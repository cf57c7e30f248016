"""beanstalkd: a work queue with delays of whole seconds; puts are pipelined on one connection.

The clients of the package index wait for the answer to each put; the protocol is lines, so here a batch is
written at once and its answers are read after it.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import numpy as np

from tarry.bench.side_by_side.servers import Server, version_of
from tarry.bench.side_by_side.system import DueMs, Durability, Peer, Take
from tarry.client.local.free_ports import free_ports

RESERVE_MAX = 500
LEASE_S = 60


class Line:
    """One connection: requests are answered in their order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._turn = asyncio.Lock()

    async def ask(self, requests: list[bytes]) -> list[bytes]:
        """Send all, and return the first line of each answer."""
        async with self._turn:
            self.writer.write(b"".join(requests))
            await self.writer.drain()
            return [await self.reader.readline() for _ in requests]


class Beanstalkd(Peer):
    """One server; every write to its log is fsynced."""

    name = server = "beanstalkd"
    durability = Durability(1, True, "-b (binlog) -f0: fsync with every write")
    cancels = True
    in_flight_max = 2
    lateness_note = "delays are whole seconds, rounded up here so that nothing is early"

    def version(self) -> str:
        return version_of(self.program(), "-v").removeprefix("beanstalkd ")

    async def start(self, folder: Path) -> None:
        (self._port,) = free_ports(1)
        self._data = folder / "log"
        self._data.mkdir()
        command = [
            self.program(), "-l", "127.0.0.1", "-p", str(self._port),
            "-b", str(self._data), "-f0",
        ]  # fmt: skip
        self._servers = [Server(command, folder, "beanstalkd")]
        self._ids: dict[str, list[bytes]] = {}
        self._first: dict[str, bytes] = {}
        await super().resume()

    async def _connect(self) -> None:
        await self._servers[0].wait_for_port(self._port)
        self._lines: dict[str, Line] = {}
        self._admin = await self._line()

    async def _line(self) -> Line:
        return Line(*await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20))

    async def open(self, lane: str) -> None:
        line = await self._line()
        await line.ask([f"use {lane}\r\n".encode()])
        self._lines[lane] = line
        self._ids[lane] = []

    async def schedule_batch(self, lane: str, bodies: list[bytes], due_ms: DueMs) -> None:
        delays = np.maximum(-(-(due_ms - time.time_ns() // 1_000_000) // 1_000), 0).tolist()
        answers = await self._lines[lane].ask(
            [
                b"put 0 %d %d %d\r\n%b\r\n" % (delay, LEASE_S, len(body), body)
                for delay, body in zip(delays, bodies, strict=True)
            ]
        )
        if not all(answer.startswith(b"INSERTED ") for answer in answers):
            raise self._servers[0].failed(f"refused a put: {set(answers)}")
        self._first.setdefault(lane, answers[0].split()[1])
        if lane.startswith("cancel"):
            self._ids[lane] += [answer.split()[1] for answer in answers]

    async def pending(self) -> int:
        line = self._admin
        (head,) = await line.ask([b"stats\r\n"])
        said = (await line.reader.readexactly(int(head.split()[1]) + 2)).decode()
        counts = dict(each.split(": ") for each in said.splitlines() if ": " in each)
        return int(counts["current-jobs-delayed"])

    async def peek(self, lane: str, count: int) -> list[bytes]:
        line = self._admin
        (head,) = await line.ask([b"peek %b\r\n" % self._first[lane]])
        if not head.startswith(b"FOUND"):
            return []
        return [(await line.reader.readexactly(int(head.split()[2]) + 2))[:-2]]

    async def receive(self, lane: str, take: Take) -> None:
        line = await self._line()
        await line.ask([f"watch {lane}\r\n".encode(), b"ignore default\r\n"])
        done = False
        while not done:
            ids, bodies = await self._reserve(line)
            if bodies:
                done = take(bodies)
                await line.ask([b"delete %b\r\n" % each for each in ids])
        line.writer.close()

    @staticmethod
    async def _reserve(line: Line) -> tuple[list[bytes], list[bytes]]:
        """Wait for a job, and take with it what else is ready."""
        ids, bodies = [], []
        requests = [b"reserve-with-timeout 1\r\n", *[b"reserve-with-timeout 0\r\n"] * (RESERVE_MAX - 1)]
        for asked in (requests[:1], requests[1:]):
            line.writer.write(b"".join(asked))
            for _ in asked:
                head = (await line.reader.readline()).split()
                if head[0] == b"RESERVED":
                    ids.append(head[1])
                    bodies.append((await line.reader.readexactly(int(head[2]) + 2))[:-2])
            if not ids:
                break
        return ids, bodies

    async def cancel(self, lane: str, count: int) -> int:
        answers = await self._lines[lane].ask([b"delete %b\r\n" % each for each in self._ids[lane]])
        return answers.count(b"DELETED\r\n")

    async def disk_bytes(self) -> int:
        """Return what is written of its files, which it makes 10 MiB large at once."""
        return sum(len(file.read_bytes().rstrip(b"\0")) for file in self._data.glob("binlog.*"))

    async def _disconnect(self) -> None:
        for line in [*self._lines.values(), self._admin]:
            line.writer.close()

    async def resume(self) -> None:
        await super().resume()
        await self.pending()  # it listens before it has read its log
