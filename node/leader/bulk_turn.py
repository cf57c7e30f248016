"""One turn for all that cancels many messages at this leader, and the rest that it leaves to others.

    comes ─► waits for its turn ─► a piece of work ─► answered
      │                              └─► rest ─► the next one's turn
      └ it would wait too long: refused, with the time at which it is to come again

Who is refused has a place in the line: where many cancel, each gets its turn after the others, however often
one of them calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from itertools import takewhile
from math import ceil
from typing import Final

from tarry.node.clock.cluster_time import ClusterTime
from tarry.replication.state_machine.machine import Machine

SHARE: Final = 0.5
"""Of the event loop's time, for all cancels of many messages together."""
SHARE_OVERDUE: Final = 0.1
"""The same while messages are overdue."""
REST_MS_MAX: Final = 1_000
ASSUMED_NS: Final = 40_000_000
"""Of a piece of work, before there has been one."""
WAIT_MS_MAX: Final = 1_000
"""Expected, of a call that waits here: clients give a call up after 3 s."""
CALLS_MAX: Final = 32
"""That wait for their turn, or have it; and as many that are to come again."""


class BulkTurn:
    """Taken by one at a time, in the order of their coming; after each it rests."""

    def __init__(self, machine: Machine, time: ClusterTime) -> None:
        self._machine, self._time = machine, time
        self._turn = asyncio.Lock()
        self._calls = 0
        self._free_at_s = 0.0
        self._work_s, self._spent_ns = ASSUMED_NS / 1e9, ASSUMED_NS  # of the last piece of work
        self._line: dict[Hashable, float] = {}  # calls that were refused, and until when they are waited for

    def stay_away_ms(self, call: Hashable) -> int:
        """Return after how long a call is to come again, with a place in the line; 0: it may wait here."""
        now_s = asyncio.get_running_loop().time()
        self._line = {one: until_s for one, until_s in self._line.items() if until_s > now_s}
        ahead = self._calls + sum(1 for _ in takewhile(lambda one: one != call, self._line))
        wait_s = max(0.0, self._free_at_s - now_s) + ahead * (self._work_s + self._rest_s(self._spent_ns))
        if self._calls < CALLS_MAX and wait_s * 1_000 <= WAIT_MS_MAX:
            self._line.pop(call, None)
            return 0
        wait_s = max(wait_s, WAIT_MS_MAX / 1_000)
        if call in self._line or len(self._line) < CALLS_MAX:
            self._line[call] = now_s + 2 * wait_s  # clients come up to half of it later
        return ceil(wait_s * 1_000)

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Wait for the turn, and until it has rested; keep it for a piece of work."""
        loop = asyncio.get_running_loop()
        self._calls += 1
        try:
            async with self._turn:
                await asyncio.sleep(self._free_at_s - loop.time())
                begin_s = loop.time()
                yield
                self._work_s = loop.time() - begin_s
        finally:
            self._calls -= 1

    def rest(self, spent_ns: int) -> None:
        """Leave the event loop to others for a while, after work that is thought to have taken so long."""
        self._spent_ns = spent_ns
        self._free_at_s = asyncio.get_running_loop().time() + self._rest_s(spent_ns)

    def _rest_s(self, spent_ns: int) -> float:
        overdue, _ = self._machine.wheel.overdue(self._time.now_ms())
        share = SHARE_OVERDUE if overdue else SHARE
        return min(spent_ns * (1 / share - 1) / 1e9, REST_MS_MAX / 1_000)
