"""NATS JetStream with three replicas: as a log, and with its scheduled messages (2.12 or newer).

publish to <lane>.at.N with Nats-Schedule: @at … ─► the server publishes to <lane>.due ─► pull consumer
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import nats
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import StorageType, StreamConfig, StreamInfo
from nats.js.errors import APIError

from tarry.bench.side_by_side.servers import Server, folder_bytes, version_of
from tarry.bench.side_by_side.system import DueMs, Durability, Peer, Take
from tarry.client.local.free_ports import free_ports

FETCH = 1_000
ASK_S = 2
ASK_S_MAX = 30
Answer = TypeVar("Answer")


class NatsLog(Peer):
    """Three servers; a batch is so many publishings under way, each answered by the stream."""

    name = "nats_r3_log"
    server = "nats-server"
    installed = "(builds it with Go)"
    durability = Durability(3, False, "R3, sync_interval 2m (the default)")
    delivers = False
    in_flight_max = 4
    sync = "2m"

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count()

    def version(self) -> str:
        return version_of(self.program(), "--version").removeprefix("nats-server: v")

    async def start(self, folder: Path) -> None:
        self._folder = folder
        ports = free_ports(9)
        self._ports = ports[:3]
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports[3:6])
        self._servers = []
        for number in range(3):
            config = folder / f"n{number}.conf"
            config.write_text(
                f'server_name: n{number}\nlisten: "127.0.0.1:{ports[number]}"\n'
                f'http: "127.0.0.1:{ports[6 + number]}"\n'
                f'jetstream {{ store_dir: "{folder}/n{number}", sync_interval: {self.sync} }}\n'
                f'cluster {{ name: bench, listen: "127.0.0.1:{ports[3 + number]}", routes: [{routes}] }}\n'
            )
            self._servers.append(Server([self.program(), "-c", str(config)], folder, f"n{number}"))
        self._health = [f"http://127.0.0.1:{port}/healthz" for port in ports[6:]]
        self._lanes: list[str] = []
        await super().resume()

    async def _connect(self) -> None:
        deadline = time.monotonic() + 60
        while not all([await asyncio.to_thread(_healthy, url) for url in self._health]):
            if time.monotonic() > deadline:
                raise self._servers[0].failed("not healthy")
            await asyncio.sleep(0.1)
        self._client: Client = await nats.connect(f"nats://127.0.0.1:{self._ports[0]}")
        self._stream: JetStreamContext = self._client.jetstream(timeout=20, publish_async_max_pending=100_000)
        self._admin: JetStreamContext = self._client.jetstream(timeout=ASK_S)

    def _config(self, lane: str) -> StreamConfig:
        return StreamConfig(name=lane, subjects=[f"{lane}.>"], num_replicas=3, storage=StorageType.FILE)

    async def open(self, lane: str) -> None:
        await self._ask(lambda: self._admin.add_stream(self._config(lane)))
        self._lanes.append(lane)

    @staticmethod
    async def _ask(question: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return the answer; while there is no leader, a question is refused or answered by nobody."""
        deadline = time.monotonic() + ASK_S_MAX
        while True:
            try:
                return await question()
            except (APIError, TimeoutError):
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)

    async def schedule_batch(self, lane: str, bodies: list[bytes], due_ms: DueMs) -> None:
        answers = [
            await self._publish(lane, body, due) for body, due in zip(bodies, due_ms.tolist(), strict=True)
        ]
        await asyncio.gather(*answers)

    async def _publish(self, lane: str, body: bytes, due_ms: int) -> asyncio.Future[object]:
        answer: asyncio.Future[object] = await self._stream.publish_async(f"{lane}.log", body)
        return answer

    async def pending(self) -> int:
        return sum([(await self._info(lane)).state.messages for lane in self._lanes])

    async def _info(self, lane: str) -> StreamInfo:
        return await self._ask(lambda: self._admin.stream_info(lane))

    async def peek(self, lane: str, count: int) -> list[bytes]:
        first = (await self._info(lane)).state.first_seq
        found = [await self._stream.get_msg(lane, seq) for seq in range(first, first + min(count, 50))]
        return [each.data or b"" for each in found]

    async def disk_bytes(self) -> int:
        return folder_bytes(self._folder / "n0")

    async def _disconnect(self) -> None:
        await self._client.close()

    async def resume(self) -> None:
        await super().resume()
        await self.pending()  # every stream has a leader


class NatsScheduled(NatsLog):
    """The same stream, whose messages name when they are to be published again."""

    name = "nats_r3"
    delivers = True
    lateness_note = "its schedules"

    def _config(self, lane: str) -> StreamConfig:
        config = super()._config(lane)
        config.allow_msg_schedules = True
        config.allow_msg_ttl = True
        return config

    async def _publish(self, lane: str, body: bytes, due_ms: int) -> asyncio.Future[object]:
        at = datetime.fromtimestamp(due_ms / 1_000, UTC).isoformat(timespec="milliseconds")
        headers = {"Nats-Schedule": f"@at {at.replace('+00:00', 'Z')}", "Nats-Schedule-Target": f"{lane}.due"}
        answer: asyncio.Future[object] = await self._stream.publish_async(
            f"{lane}.at.{next(self._numbers)}", body, headers=headers
        )
        return answer

    async def receive(self, lane: str, take: Take) -> None:
        subscription = await self._ask(
            lambda: self._admin.pull_subscribe(f"{lane}.due", durable="bench", stream=lane)
        )
        while True:
            try:
                messages = await subscription.fetch(FETCH, timeout=1)
            except TimeoutError:  # nothing came; the client raises its own, or asyncio's
                continue
            done = take([message.data for message in messages])
            for message in messages:
                await message.ack()
            if done:
                await self._client.flush()
                return


class NatsScheduledSynced(NatsScheduled):
    """Fsync with every message."""

    name = "nats_r3_always"
    durability = Durability(3, True, "R3, sync_interval always")
    sync = "always"


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            return bool(json.load(answer)["status"] == "ok")
    except (urllib.error.URLError, OSError):
        return False
