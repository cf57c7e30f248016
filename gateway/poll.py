"""A poll of a caller who may leave: what nobody receives any more is given to others at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Sequence
from typing import Any, Final

from tarry.client.aio import Puller
from tarry.client.consumers.message import View
from tarry.client.errors import TarryError

RELEASE_S: Final = 5.0
"""Within which messages are given back; else they come again at the end of their lease."""


class Returns:
    """Messages that are being given back, also once the calls that received them are cancelled."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[None]] = set()

    async def give_back(self, puller: Puller, messages: Sequence[View]) -> None:
        """Have messages that nobody has received delivered to others, though this is cancelled meanwhile."""

        async def given_back() -> None:
            with contextlib.suppress(TarryError, TimeoutError):
                async with asyncio.timeout(RELEASE_S):
                    await puller.nack(messages, 0)

        if messages:
            task = asyncio.create_task(given_back())
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            await asyncio.shield(task)

    async def end(self) -> None:
        """Return once nothing is to be given back any more."""
        while self._under_way:  # a call that is cancelled last gives back last
            await asyncio.gather(*self._under_way)


async def received(
    puller: Puller,
    messages_max: int,
    wait_ms: int,
    returns: Returns,
    *ends: Awaitable[Any],
    deadline_ms: int | None = None,
) -> list[View]:
    """Return what comes; nothing once one of the ends has come, which are cancelled else.

    ``deadline_ms``: as of ``Puller.receive``. What comes as the caller is cancelled is given back.
    """
    receiving = asyncio.ensure_future(puller.receive(messages_max, wait_ms=wait_ms, deadline_ms=deadline_ms))
    ending = [asyncio.ensure_future(end) for end in ends]
    try:
        await asyncio.wait({receiving, *ending}, return_when=asyncio.FIRST_COMPLETED)
        return receiving.result() if receiving.done() else []
    except asyncio.CancelledError:
        if receiving.done() and not receiving.cancelled() and receiving.exception() is None:
            await returns.give_back(puller, receiving.result())
        raise
    finally:  # without waiting for them: what was received would be lost were the caller cancelled meanwhile
        for task in (receiving, *ending):
            task.cancel()
