"""Celery and dramatiq: task queues whose workers hold what is not yet due; on Redis with fsync always.

apply_async(eta) ─► Redis ─► the worker's memory ─(due)─► the task writes a line ─► read here
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import time_ns
from typing import Any, ClassVar

from tarry.bench.side_by_side.peers.redis import RedisAlways
from tarry.bench.side_by_side.servers import Server
from tarry.bench.side_by_side.system import DueMs, Durability, Take

READ_S = 0.02
PEERS = "tarry.bench.side_by_side.peers"


class CeleryEta(RedisAlways):
    """Tasks with an ETA, acknowledged late; one worker with four threads."""

    name = "celery"
    library = "celery"
    durability = Durability(1, True, "Redis appendfsync always; acks_late")
    cancels = False
    batch_max = 100
    in_flight_max = 4
    lateness_note = "taken by the worker's own clock"
    waiting: ClassVar = (("llen", "bench"), ("hlen", "unacked"))
    worker_settings: ClassVar[dict[str, str]] = {}

    def missing(self) -> str:
        try:
            version(self.library)
        except PackageNotFoundError:
            return f"no {self.library}: pip install --group bench"
        return super().missing()

    def version(self) -> str:
        return f"{version(self.library)} on Redis {super().version()}"

    def _command(self) -> list[str]:
        module = f"{PEERS}.celery_tasks"
        options = ["--pool", "threads", "--concurrency", "4", "--queues", "bench", "--loglevel", "WARNING"]
        return [sys.executable, "-m", "celery", "-A", module, "worker", *options]

    def _sender(self) -> Callable[[str, int], object]:
        receive: Any = importlib.import_module(f"{PEERS}.celery_tasks").receive
        return lambda body, due_ms: receive.apply_async(
            (body,), eta=datetime.fromtimestamp(due_ms / 1_000, UTC), retry=False
        )

    async def start(self, folder: Path) -> None:
        await super().start(folder)
        self._out = folder / "received"
        self._out.touch()
        os.environ["SIDE_BY_SIDE_REDIS"] = f"redis://127.0.0.1:{self._port}/0"
        os.environ["SIDE_BY_SIDE_OUT"] = str(self._out)
        self._send = self._sender()
        self._worker = Server(self._command(), folder, self.name, environment=self.worker_settings)
        self._worker.start()

    async def stop(self) -> None:
        self._worker.kill()
        await super().stop()

    async def open(self, lane: str) -> None:
        """Do nothing: one queue serves all lanes."""

    async def schedule_batch(self, lane: str, bodies: list[bytes], due_ms: DueMs) -> None:
        def send() -> None:
            for body, due in zip(bodies, due_ms.tolist(), strict=True):
                self._send(body.hex(), due)

        await asyncio.to_thread(send)

    async def schedule(self, lane: str, body: bytes, due_ms: int) -> None:
        await asyncio.to_thread(self._send, body.hex(), due_ms)

    def processes(self) -> Mapping[str, Sequence[int]]:
        return {"servers": [*super().processes()["servers"], self._worker.pid]}

    async def pending(self) -> int:
        return sum([int(await getattr(self._client, ask)(key)) for ask, key in self.waiting])

    async def peek(self, lane: str, count: int) -> list[bytes]:
        return []

    async def receive(self, lane: str, take: Take) -> None:
        with self._out.open() as lines:
            lines.seek(0, os.SEEK_END)
            rest = ""
            while True:
                *whole, rest = (rest + lines.read()).split("\n")
                for line in whole:
                    received_ms, body = line.split()
                    if take([bytes.fromhex(body)], float(received_ms)):
                        return
                await asyncio.sleep(READ_S)


class DramatiqDelay(CeleryEta):
    """Messages with a delay; one worker process with eight threads, its default.

    A worker takes up to 1,000 messages a thread that are not yet due, and then sees no other until one of
    them is: those of the rows before, due in an hour, would keep it from all that follow. 65,535 is the most
    it can be told to take.
    """

    name = "dramatiq"
    library = "dramatiq"
    durability = Durability(1, True, "Redis appendfsync always; acknowledged when done (its default)")
    lateness_note = "taken by the worker's own clock; it holds up to 65,535 not yet due, by default 8,000"
    waiting: ClassVar = (("hlen", "dramatiq:bench.msgs"), ("hlen", "dramatiq:bench.DQ.msgs"))

    worker_settings: ClassVar = {"dramatiq_delay_queue_prefetch": "65535"}

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "dramatiq", f"{PEERS}.dramatiq_tasks", "-p", "1", "-t", "8"]

    def _sender(self) -> Callable[[str, int], object]:
        receive: Any = importlib.import_module(f"{PEERS}.dramatiq_tasks").receive
        return lambda body, due_ms: receive.send_with_options(
            args=(body,), delay=max(0, due_ms - time_ns() // 1_000_000)
        )
