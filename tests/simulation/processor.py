"""A node's processor: what it is busy with takes virtual time, in which the node does nothing else.

All nodes share one event loop. A callback that belongs to a node carries the node's processor in its context;
the loop puts it off while the processor is busy. What a callback costs is charged where the work is done, and
moves the node's own time: its clocks, and when its frames leave.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context, ContextVar, copy_context
from typing import Final

TURN_US: Final = 100.0
"""One turn of the driver: the engine's tick, reading and sealing frames."""
AT_ONCE_US: Final = 100.0
"""A small write to a quick disk, within a turn."""
ENTRY_US: Final = 60.0
ROW_US: Final = 2.0
"""A message scheduled, released or acknowledged, its row in the ledger included."""
HOUR_US: Final = 25.0
"""An hour that an entry touches: its files are opened, read and written."""
FAR_HOUR_US: Final = 2.0
"""One of many, which share a log."""
NEAR_HOURS: Final = 8
BYTE_US: Final = 0.002
"""Of an entry: parsing, checksums, writing."""
CALL_US: Final = 150.0
"""A request of a client: parsing, checks, the answer."""
DELIVERED_US: Final = 5.0
"""A message: its record is read, and goes into a response."""


class Processor:
    """Of one node. `slowness`: how many times longer everything takes than measured; 0: no time at all."""

    def __init__(self, slowness: float = 0.0) -> None:
        self.slowness = slowness
        self.free_at = 0.0
        self.put_off: deque[asyncio.Handle] = deque()
        self.context: Context = copy_context()
        self.context.run(PROCESSOR.set, self)

    def now(self) -> float:
        """Return the node's own time: the loop's, or when it is done with what it does."""
        return max(asyncio.get_running_loop().time(), self.free_at)

    def charge(self, cost_us: float) -> None:
        if self.slowness:
            self.free_at = self.now() + cost_us * self.slowness / 1e6

    def stop(self) -> None:
        """The power is lost."""
        self.free_at = 0.0

    async def idle(self) -> None:
        """Return once all that has been charged is done: an answer leaves no earlier."""
        late_s = self.free_at - asyncio.get_running_loop().time()
        if late_s > 0:
            await asyncio.sleep(late_s)


PROCESSOR: ContextVar[Processor] = ContextVar("processor")
