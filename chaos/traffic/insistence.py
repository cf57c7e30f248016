"""Calls that are made until the cluster has done them, however often that takes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from tarry.client.errors import OutcomeUnknown, Overloaded, Unavailable

AGAIN_S: Final = 0.2


async def insist(work: Callable[[], Awaitable[object]]) -> None:
    """Call until it neither fails for want of a leader nor has an unknown outcome; raises other errors."""
    while True:
        try:
            await work()
        except (Unavailable, OutcomeUnknown, Overloaded):
            await asyncio.sleep(AGAIN_S)
        else:
            return
