"""Blocking work off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

RunBlocking: TypeAlias = Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]]
"""Runs work off the event loop; returns what it returns."""


async def in_thread(work: Callable[[], Any]) -> Any:
    """Run blocking work in a thread of the event loop's executor."""
    return await asyncio.get_running_loop().run_in_executor(None, work)
