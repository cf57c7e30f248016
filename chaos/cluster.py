"""A local cluster that writes down what is done to it, for coroutines.

Every fault becomes an event of the history, with the moment at which it was done, so that checks and figures
can be set against it. Waiting happens in a thread, starting does not (see LocalCluster).
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Self

from tarry.chaos.history import Event
from tarry.client.local_cluster import LocalCluster


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def mono_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Cluster:
    """`async with Cluster(3, folder) as cluster:` is a cluster that serves."""

    def __init__(self, size: int, folder: Path, **settings: str | int | float | bool) -> None:
        self.local = LocalCluster(size, folder, settings)
        self.events: list[Event] = []

    async def __aenter__(self) -> Self:
        try:
            self.start()
            await self.serving()
        except BaseException:
            self.local.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.local.close)

    @property
    def addresses(self) -> str:
        return self.local.addresses

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.local.nodes)

    def _happened(self, name: str, node: str) -> Event:
        event = Event(name, node, now_ms(), mono_ms())
        self.events.append(event)
        return event

    def start(self, *names: str) -> None:
        for name in names or self.names:
            self.local.start(name)
            self._happened("start", name)

    def kill(self, name: str) -> Event:
        """Crash a node (SIGKILL)."""
        event = self._happened("kill", name)
        self.local.kill(name)
        return event

    def pause(self, name: str) -> Event:
        event = self._happened("pause", name)
        self.local.pause(name)
        return event

    def resume(self, name: str) -> Event:
        self.local.resume(name)
        return self._happened("resume", name)

    async def stop(self, name: str) -> int:
        """End a node as an operator would; return its exit code."""
        self._happened("stop", name)
        return await asyncio.to_thread(self.local.stop, name)

    async def restart(self, name: str) -> None:
        if self.local.nodes[name].running:
            await self.stop(name)
        self.start(name)

    async def leader(self, timeout_s: float = 30.0) -> str:
        """Return the node that leads and may serve, waiting for one to do."""
        return await asyncio.to_thread(self.local.wait_for_leader, timeout_s)

    async def serving(self, timeout_s: float = 30.0) -> str:
        """Wait until every running node knows the leader; return it."""
        return await asyncio.to_thread(self.local.wait_until_serving, timeout_s)

    async def term(self) -> int:
        """Return the highest term that any node is in."""
        statuses = await asyncio.to_thread(lambda: list(self.local.statuses()))
        return max(status.term for status in statuses)
