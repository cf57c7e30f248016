"""Redis: a sorted set by due time, polled; claiming and acknowledging by a script and a second sorted set.

ZADD <lane> ─► poll: due ones move to <lane>.hand with their lease ─► ZREM <lane>.hand
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from redis.asyncio import Redis as Client
from redis.exceptions import RedisError

from tarry.bench.side_by_side.servers import Server, version_of
from tarry.bench.side_by_side.system import DueMs, Durability, Peer, Take
from tarry.client.local.free_ports import free_ports

POLL_S = 0.002
CLAIM_MAX = 1_000
LEASE_MS = 30_000
CLAIM = """
local due = redis.call('ZRANGE', KEYS[1], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', 0, ARGV[2])
for start = 1, #due, 1000 do
    local add, last = {}, math.min(start + 999, #due)
    for at = start, last do add[#add + 1] = ARGV[3]; add[#add + 1] = due[at] end
    redis.call('ZADD', KEYS[2], unpack(add))
    redis.call('ZREM', KEYS[1], unpack(due, start, last))
end
return due
"""


class RedisAlways(Peer):
    """Every write is fsynced before its answer."""

    name = "redis_always"
    server = "redis-server"
    durability = Durability(1, True, "appendonly yes, appendfsync always")
    cancels = True
    lateness_note = "polled every 2 ms"
    fsync = "always"

    def version(self) -> str:
        said = version_of(self.program(), "--version")
        return said.partition("v=")[2].partition(" ")[0] or said

    async def start(self, folder: Path) -> None:
        self._folder = folder
        (port,) = free_ports(1)
        self._port = port
        command = [
            self.program(), "--port", str(port), "--bind", "127.0.0.1",
            "--dir", str(folder), "--appendonly", "yes", "--appendfsync", self.fsync, "--save", "",
        ]  # fmt: skip
        self._servers = [Server(command, folder, "redis")]
        self._lanes: set[str] = set()
        self._kept: dict[str, list[list[bytes]]] = {}
        await self.resume()

    async def _connect(self) -> None:
        await self._servers[0].wait_for_port(self._port)
        self._client = Client(port=self._port)
        self._claim = self._client.register_script(CLAIM)
        deadline = time.monotonic() + 60
        while True:
            try:
                await self._client.ping()
            except RedisError:  # it listens while it still loads
                if time.monotonic() > deadline:
                    raise self._servers[0].failed("still loading") from None
                await asyncio.sleep(0.02)
            else:
                return

    async def open(self, lane: str) -> None:
        self._lanes.add(lane)
        self._kept[lane] = []

    async def schedule_batch(self, lane: str, bodies: list[bytes], due_ms: DueMs) -> None:
        command: list[bytes | str | int] = ["ZADD", lane]
        for pair in zip(due_ms.tolist(), bodies, strict=True):
            command += pair
        await self._client.execute_command(*command)
        if lane.startswith("cancel"):
            self._kept[lane].append(bodies)

    async def pending(self) -> int:
        return sum([await self._client.zcard(lane) for lane in self._lanes])

    async def peek(self, lane: str, count: int) -> list[bytes]:
        bodies: list[bytes] = await self._client.zrange(lane, 0, count - 1)
        return bodies

    async def receive(self, lane: str, take: Take) -> None:
        hand = f"{lane}.hand"
        while True:
            now_ms = time.time_ns() // 1_000_000
            bodies = await self._claim(keys=[lane, hand], args=[now_ms, CLAIM_MAX, now_ms + LEASE_MS])
            if not bodies:
                await asyncio.sleep(POLL_S)
                continue
            done = take(bodies)
            await self._client.zrem(hand, *bodies)
            if done:
                return

    async def cancel(self, lane: str, count: int) -> int:
        return sum([await self._client.zrem(lane, *bodies) for bodies in self._kept[lane]])

    async def clear(self) -> None:
        """Start anew: the memory of what is gone is not given back at once."""
        await self._client.flushall()
        await self.disk_bytes()
        await self.halt()
        await self.resume()

    async def disk_bytes(self) -> int:
        """Return the size of the append-only file after a rewrite."""
        await self._client.bgrewriteaof()
        while True:
            found = await self._client.info("persistence")
            if not found["aof_rewrite_in_progress"] and not found["aof_rewrite_scheduled"]:
                return int(found["aof_current_size"])
            await asyncio.sleep(0.05)

    async def _disconnect(self) -> None:
        await self._client.aclose()


class RedisEverysec(RedisAlways):
    """Fsync once a second: a crash loses what was acknowledged since."""

    name = "redis_everysec"
    durability = Durability(1, False, "appendonly yes, appendfsync everysec")
    fsync = "everysec"
