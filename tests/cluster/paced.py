"""A link of so many bytes a second, and no more: a TCP proxy that all connections of one link share."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self

CHUNK_BYTES = 16 << 10


class PacedLink:
    """From whoever connects to one address. Its two directions are paced apart."""

    def __init__(self, target: str, bytes_per_s: float) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._bytes_per_s = bytes_per_s
        self._free_at = {"there": 0.0, "back": 0.0}
        self.carried_bytes = {"there": 0, "back": 0}
        self.connections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=CHUNK_BYTES)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            reader_there, writer_there = await asyncio.open_connection(*self._target, limit=CHUNK_BYTES)
        except OSError:
            writer.close()
            return
        for way in (
            self._carry("there", reader, writer_there),
            self._carry("back", reader_there, writer),
        ):
            task = asyncio.create_task(way)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(CHUNK_BYTES):
                self._free_at[way] = max(self._free_at[way], loop.time()) + len(data) / self._bytes_per_s
                await asyncio.sleep(self._free_at[way] - loop.time())
                writer.write(data)
                await writer.drain()
                self.carried_bytes[way] += len(data)
        writer.transport.abort()
