"""Parts that the handles of all gateways share: who has a message in hand, and bytes as text."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final, TypeVar

from tarry.client.integers import UINT32_MAX, UINT64_MAX

H = TypeVar("H")
T = TypeVar("T")

HOLDERS_AT_ONCE: Final = 16
"""Holders whose messages one request settles at a time: each is a call to the cluster."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The consumer that has a message in hand, and the queue from which it has it."""

    topic: str
    group: str
    consumer: str
    queue: int
    incarnation: int
    """Of the cluster, as it delivered: in another one what the handle names is another message."""


async def each_at_once(holders: Collection[H], work: Callable[[H], Awaitable[T]]) -> list[T]:
    """Return what the work returns for each holder, HOLDERS_AT_ONCE at a time; mostly there is one."""
    if len(holders) == 1:
        return [await work(holder) for holder in holders]
    gate = asyncio.Semaphore(HOLDERS_AT_ONCE)

    async def of_one(holder: H) -> T:
        async with gate:
            return await work(holder)

    return await asyncio.gather(*map(of_one, holders))


def are_in_range(queue: int, incarnation: int, offset: int) -> bool:
    """Return whether numbers that JSON has told, which may be its truth values, can name a delivery."""
    numbers = not any(isinstance(number, bool) for number in (queue, incarnation, offset))
    return (
        numbers and 0 <= queue <= UINT32_MAX and 0 <= incarnation <= UINT64_MAX and 0 <= offset <= UINT64_MAX
    )


def encoded(version: str, content: bytes) -> str:
    """Return content as the text of a handle: the version of its form, a dot, and base64 for URLs."""
    return f"{version}.{base64.urlsafe_b64encode(content).decode().rstrip('=')}"


def decoded(text: str) -> bytes:
    """Return the content of what stands behind the dot. Raises ValueError."""
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
