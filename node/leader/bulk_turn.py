"""One turn for all that cancels many messages at this leader, and the rest that it leaves to others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tarry.node.clock.cluster_time import ClusterTime
from tarry.replication.state_machine.machine import Machine

SHARE: Final = 0.5
"""Of the event loop's time, for all cancels of many messages together."""
SHARE_OVERDUE: Final = 0.1
"""The same while messages are overdue."""
REST_MS_MAX: Final = 1_000
CALLS_MAX: Final = 32
"""That wait for their turn, or have it."""


class BulkTurn:
    """Taken by one at a time, in the order of their coming; each then rests."""

    def __init__(self, machine: Machine, time: ClusterTime) -> None:
        self._machine, self._time = machine, time
        self._turn = asyncio.Lock()
        self._calls = 0

    @property
    def full(self) -> bool:
        """True where so many wait that others are to be refused."""
        return self._calls >= CALLS_MAX

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Wait for the turn, and keep it for a piece of work and the rest behind it."""
        self._calls += 1
        try:
            async with self._turn:
                yield
        finally:
            self._calls -= 1

    async def rest(self, spent_ns: int) -> None:
        """Leave the event loop to others after work that is thought to have taken so long."""
        overdue, _ = self._machine.wheel.overdue(self._time.now_ms())
        share = SHARE_OVERDUE if overdue else SHARE
        await asyncio.sleep(min(spent_ns * (1 / share - 1) / 1e9, REST_MS_MAX / 1_000))
