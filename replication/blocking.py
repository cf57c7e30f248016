"""Runs blocking work off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol


class RunBlocking(Protocol):
    def __call__(self, work: Callable[[], Any], /) -> Awaitable[Any]:
        """Runs `work` off the event loop; gives back what it does."""


async def in_thread(work: Callable[[], Any]) -> Any:
    """Run blocking work in a thread of the event loop's executor."""
    return await asyncio.get_running_loop().run_in_executor(None, work)
