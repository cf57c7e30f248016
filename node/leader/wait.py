"""Short wait of calls while leadership moves, instead of a refusal that costs the caller a pause."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class LeaderWait:
    """Calls that wait for a leader; each change wakes them to look again."""

    def __init__(self, is_led: Callable[[], bool]) -> None:
        self._is_led = is_led
        self._changed = asyncio.Event()  # never stays set: it wakes who waits

    def notify(self) -> None:
        """Wake the waiting calls: who leads may have changed."""
        self._changed.set()
        self._changed.clear()

    async def until_led(self, within_s: float) -> bool:
        """Return whether there is a leader, as soon as there is one."""
        try:
            async with asyncio.timeout(within_s):
                while not self._is_led():
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True
