"""PostgreSQL: a table by due time, polled with FOR UPDATE SKIP LOCKED; COPY in."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg

from tarry.bench.side_by_side.servers import Server, program, version_of
from tarry.bench.side_by_side.system import DueMs, Durability, Peer, Take
from tarry.client.local.free_ports import free_ports

CONNECTIONS = 32
POLL_S = 0.002
CLAIM_MAX = 1_000
CLAIM = """
delete from "{lane}" where id in (
    select id from "{lane}" where due_ms <= %b order by due_ms limit %b for update skip locked
) returning body
"""


class PostgresCopy(Peer):
    """One server; a batch is one COPY, an acknowledgement the commit of what claimed."""

    name = "postgres_copy"
    server = "postgres"
    package = "postgresql"
    folders = tuple(str(folder) for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin")))
    durability = Durability(1, True, "fsync on, synchronous_commit on (the defaults)")
    cancels = True
    lateness_note = "polled every 2 ms"

    def version(self) -> str:
        return version_of(self.program(), "--version").split()[2]

    async def start(self, folder: Path) -> None:
        user = "postgres" if os.geteuid() == 0 else ""  # it refuses to run as root
        data = folder / "data"
        if user:
            shutil.chown(folder, user)
        guard = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"] if user else []
        initdb = program("initdb", *self.folders) or "initdb"
        made = await asyncio.create_subprocess_exec(
            *guard, initdb, "-D", str(data), "-A", "trust", "-U", "bench",
            cwd=folder, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        await made.wait()
        (port,) = free_ports(1)
        command = [
            self.program(), "-D", str(data), "-p", str(port), "-k", str(folder),
            "-c", "listen_addresses=127.0.0.1", "-c", "max_wal_size=4GB", "-c", "shared_buffers=256MB",
        ]  # fmt: skip
        self._servers = [Server(command, folder, "postgres", user=user)]
        self._address = f"host=127.0.0.1 port={port} user=bench dbname=postgres"
        self._port = port
        self._lanes: list[str] = []
        await self.resume()

    async def _connect(self) -> None:
        await self._servers[0].wait_for_port(self._port)
        deadline = time.monotonic() + 60
        self._idle: asyncio.LifoQueue[psycopg.AsyncConnection] = asyncio.LifoQueue()
        while self._idle.qsize() < CONNECTIONS:
            try:
                connection = await psycopg.AsyncConnection.connect(self._address, autocommit=True)
            except psycopg.OperationalError:  # it listens while it still recovers
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.02)
                continue
            self._idle.put_nowait(connection)

    async def open(self, lane: str) -> None:
        await self._ask(
            f'create table "{lane}" (id bigserial primary key, due_ms bigint not null, body bytea not null)'
        )
        await self._ask(f'create index on "{lane}" (due_ms)')
        self._lanes.append(lane)

    @asynccontextmanager
    async def _lent(self) -> AsyncIterator[psycopg.AsyncConnection]:
        connection = await self._idle.get()
        try:
            yield connection
        finally:
            self._idle.put_nowait(connection)

    async def _ask(self, statement: str) -> list[tuple[object, ...]]:
        async with self._lent() as connection:
            cursor = await connection.execute(statement.encode(), binary=True)
            return await cursor.fetchall() if cursor.description else []

    async def schedule_batch(self, lane: str, bodies: list[bytes], due_ms: DueMs) -> None:
        statement = f'copy "{lane}" (due_ms, body) from stdin (format binary)'.encode()
        async with (
            self._lent() as connection,
            connection.cursor() as cursor,
            cursor.copy(statement) as copy,
        ):
            copy.set_types(["int8", "bytea"])
            for row in zip(due_ms.tolist(), bodies, strict=True):
                await copy.write_row(row)

    async def pending(self) -> int:
        counts = [await self._ask(f'select count(*) from "{lane}"') for lane in self._lanes]
        return sum(int(str(count[0][0])) for count in counts)

    async def peek(self, lane: str, count: int) -> list[bytes]:
        rows = await self._ask(f'select body from "{lane}" limit {count}')
        return [row[0] for row in rows if isinstance(row[0], bytes)]

    async def receive(self, lane: str, take: Take) -> None:
        connection = await psycopg.AsyncConnection.connect(self._address)
        async with connection:
            claim = CLAIM.format(lane=lane).encode()
            while True:
                cursor = await connection.execute(
                    claim, (time.time_ns() // 1_000_000, CLAIM_MAX), binary=True
                )
                bodies = [row[0] for row in await cursor.fetchall()]
                done = bool(bodies) and take(bodies)
                await connection.commit()
                if done:
                    return
                if not bodies:
                    await asyncio.sleep(POLL_S)

    async def cancel(self, lane: str, count: int) -> int:
        cancelled = 0
        for start in range(1, count + 1, self.batch_max):
            stop = min(start + self.batch_max, count + 1)
            gone = await self._ask(f'delete from "{lane}" where id >= {start} and id < {stop} returning 1')
            cancelled += len(gone)
        return cancelled

    async def disk_bytes(self) -> int:
        """Return the size of the tables and their indexes."""
        sizes = [await self._ask(f"select pg_total_relation_size('\"{lane}\"')") for lane in self._lanes]
        return sum(int(str(size[0][0])) for size in sizes)

    async def _disconnect(self) -> None:
        while not self._idle.empty():
            await self._idle.get_nowait().close()


class PostgresInsert(PostgresCopy):
    """The same with INSERT by executemany, which psycopg pipelines, in one transaction."""

    name = "postgres_insert"

    async def schedule_batch(self, lane: str, bodies: list[bytes], due_ms: DueMs) -> None:
        statement = f'insert into "{lane}" (due_ms, body) values (%b, %b)'.encode()
        rows = list(zip(due_ms.tolist(), bodies, strict=True))
        async with (
            self._lent() as connection,
            connection.transaction(),
            connection.cursor() as cursor,
        ):
            await cursor.executemany(statement, rows)
