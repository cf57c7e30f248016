"""Channels whose credentials are out of date: what is under way on them ends by itself."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final

import grpc.aio

SETS_MAX: Final = 4
"""Of the channels before a renewal each. Those that nobody calls have no connection (idle timeout), so few
remain of more renewals than a call lasts."""


class RetiredChannels:
    def __init__(self) -> None:
        self._sets: deque[list[grpc.aio.Channel]] = deque()
        self._closing: set[asyncio.Task[None]] = set()

    def add(self, channels: Iterable[grpc.aio.Channel]) -> None:
        """Keep the channels for what is under way on them; of too many, the oldest are closed."""
        self._sets.append(list(channels))
        while len(self._sets) > SETS_MAX:
            task = asyncio.get_running_loop().create_task(_close(self._sets.popleft()))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all of them now."""
        while self._sets:
            await _close(self._sets.popleft())
        await asyncio.gather(*self._closing)


async def _close(channels: Iterable[grpc.aio.Channel]) -> None:
    for channel in channels:
        await channel.close(None)
