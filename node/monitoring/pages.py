"""The pages of the port for metrics: what is counted, and the two questions of a probe."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias

from prometheus_client.metrics_core import Metric

from tarry.node.monitoring.exposition import CONTENT_TYPE, render
from tarry.node.monitoring.port import TEXT, Page, Route

Families: TypeAlias = Callable[[], Awaitable[Iterable[Metric]]]

KEPT_S: Final = 1.0
"""For so long a rendering answers further scrapes."""


def pages(families: Families, not_ready: Callable[[], str]) -> dict[str, Route]:
    """Return the pages by path; ``not_ready``: why the node would not serve a call, empty where it would."""

    async def readiness() -> Page:
        why = not_ready()
        return Page(503, TEXT, f"{why}\n".encode()) if why else Page(200, TEXT, b"ready\n")

    return {"/metrics": Renderings(families).newest, "/healthz": _alive, "/readyz": readiness}


class Renderings:
    """Renderings of the metrics, one at a time: who asks meanwhile, or soon after, gets the same."""

    def __init__(self, families: Families, now_s: Callable[[], float] = time.monotonic) -> None:
        self._families = families
        self._now_s = now_s
        self._lock = asyncio.Lock()
        self._newest: Page | None = None
        self._made_s = 0.0

    async def newest(self) -> Page:
        """Return a rendering that is a second old at most."""
        async with self._lock:
            if self._newest is None or self._now_s() - self._made_s >= KEPT_S:
                self._newest = Page(200, CONTENT_TYPE, await render(await self._families()))
                self._made_s = self._now_s()
            return self._newest


async def _alive() -> Page:
    """Answer: a loop that is held would not."""
    return Page(200, TEXT, b"alive\n")
