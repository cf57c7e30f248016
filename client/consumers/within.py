"""A wait that has an end: what comes in time is not lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def within(awaited: Awaitable[T], timeout_ms: int | None) -> T | None:
    """Return what comes within that time, of 0 what is there already; None: nothing. Raises what it raises.

    It is awaited in the caller's own task: in one beside it, what it has taken would be lost where the caller
    is cancelled in that turn.
    """
    if timeout_ms is None:
        return await awaited
    try:
        async with asyncio.timeout(timeout_ms / 1_000) as end:
            return await awaited
    except TimeoutError:
        if not end.expired():
            raise
        return None
