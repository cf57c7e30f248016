"""Blocking work off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias

RunBlocking: TypeAlias = Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]]
"""Runs work off the event loop; returns what it returns."""


async def in_thread(work: Callable[[], Any]) -> Any:
    """Run blocking work in a thread of the event loop's executor."""
    return await _run(None, work)


def in_own_thread(name: str) -> RunBlocking:
    """Return a runner with one thread of its own, which begins with the first work.

    The event loop's executor has a few threads more than there are processors: work that must not wait
    would wait there for whatever takes long.
    """
    return partial(_run, ThreadPoolExecutor(1, name))


async def _run(executor: ThreadPoolExecutor | None, work: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(executor, work)
