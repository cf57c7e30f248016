"""A wait that has an end: what comes in time is not lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def within(awaited: Awaitable[T], timeout_ms: int | None) -> T | None:
    """Return what comes within that time, of 0 what is there already; None: nothing. Raises what it raises.

    ``asyncio.wait_for`` does not begin what has no time, and in Python 3.11 it forgets that its caller was
    cancelled where the result came in the same turn.
    """
    if timeout_ms is None:
        return await awaited
    task = asyncio.ensure_future(awaited)
    try:
        await asyncio.wait({task}, timeout=timeout_ms / 1_000)
    except BaseException:
        task.cancel()
        raise
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    return None if task.cancelled() else task.result()
