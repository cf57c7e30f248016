"""A wait that has an end."""

from __future__ import annotations

import asyncio

import pytest

from tarry.client.consumers.within import within


async def test_what_is_there_already_comes_without_time() -> None:
    async def there() -> str:
        return "there"

    assert await within(there(), 0) == "there"
    assert await within(there(), None) == "there"


async def test_what_does_not_come_in_time_is_nothing_and_is_ended() -> None:
    ended = asyncio.Event()

    async def never() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    assert await within(never(), 1) is None
    assert ended.is_set()


async def test_what_comes_as_it_is_ended_is_not_lost() -> None:
    async def late() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "late"
        return ""

    assert await within(late(), 1) == "late"


async def test_an_error_is_raised_and_a_cancelled_caller_is_cancelled() -> None:
    async def fails() -> str:
        raise StopAsyncIteration

    with pytest.raises(StopAsyncIteration):
        await within(fails(), 1_000)
    comes = asyncio.Event()

    async def waits() -> str:
        await comes.wait()
        return "it"

    caller = asyncio.ensure_future(within(waits(), 60_000))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    comes.set()
    caller.cancel()  # in the turn in which it comes
    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_what_comes_as_the_caller_is_cancelled_is_still_there() -> None:
    arrived, left = asyncio.Event(), list[str]()

    async def take() -> str:
        await arrived.wait()
        return left.pop()

    waiting = asyncio.ensure_future(within(take(), 10_000))
    await asyncio.sleep(0)
    left.append("message")
    arrived.set()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.sleep(0)
    assert left == ["message"]
