"""Pauses between asking peers for what is damaged here: each longer than the one before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

RETRY_MS_MIN: Final = 1_000
RETRY_MS_MAX: Final = 300_000

PeerAddresses = Callable[[], Iterable[str]]
"""Gives the addresses that can be asked, at the moment."""


class Pauses:
    """Pauses of one task, which asks, then rests."""

    def __init__(self) -> None:
        self._wake = asyncio.Event()
        self._next_ms = RETRY_MS_MIN

    def end(self) -> None:
        """End the pause: more damage is to be asked for as soon as possible."""
        self._wake.set()

    def begin(self) -> None:
        """Begin a round, in which all that was reported up to now is asked for."""
        self._wake.clear()

    async def rest(self, peers: PeerAddresses, *, left: bool, mended: bool) -> bool:
        """Wait for a report (True), or for the time to ask again: a while, or another peer in reach.

        ``left``: whether anything is to be asked for again; ``mended``: whether some of it was, this time.
        """
        self._next_ms = RETRY_MS_MIN if mended else min(2 * self._next_ms, RETRY_MS_MAX)
        reported = await (self._rest(peers) if left else self._wake.wait())
        if reported:
            self._next_ms = RETRY_MS_MIN
        return reported

    async def _rest(self, peers: PeerAddresses) -> bool:
        asked = set(peers())
        for _ in range(self._next_ms // RETRY_MS_MIN):
            try:
                async with asyncio.timeout(RETRY_MS_MIN / 1000):
                    return await self._wake.wait()
            except TimeoutError:
                there = set(peers())
                if there - asked:
                    break
                asked &= there
        return False
