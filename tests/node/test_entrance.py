"""Calls whose request does not come are ended: in time, and sooner where there are many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tarry.node.config import Connections
from tarry.node.services.entrance import GRACE_S, Entrance
from tests.simulation import virtual_loop
from tests.simulation.edge import Context, StreamEnded

WAITING_MAX = 2
WAIT_MS = 60_000


async def nothing() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def one_request(request: bytes) -> AsyncIterator[bytes]:
    yield request


def entrance() -> Entrance:
    bounds = Connections(waiting_calls_max=WAITING_MAX, request_ms=WAIT_MS)
    return Entrance([], lambda path, metadata: None, bounds, request_bytes_max=lambda path: 10)


def entered(to: Entrance, requests: AsyncIterator[bytes]) -> asyncio.Future[Any]:
    context: Any = Context()
    return asyncio.ensure_future(to._first(requests, context, WAIT_MS, 10))


def test_of_too_many_silent_calls_the_oldest_is_ended_unless_it_is_young() -> None:
    async def play() -> None:
        to, calls = entrance(), []
        for pause_s in (0.0, 0.0, GRACE_S, 0.0, 0.0):
            await asyncio.sleep(pause_s)
            calls.append(entered(to, nothing()))
        await asyncio.sleep(0.01)
        assert [call.done() for call in calls] == [True, True, False, False, False]
        for call in calls[:2]:
            with pytest.raises(StreamEnded, match="no request has come"):
                await call
        for call in calls:
            call.cancel()

    virtual_loop.run(play())


def test_a_silent_call_is_ended_when_its_time_is_over() -> None:
    async def play() -> None:
        call = entered(entrance(), nothing())
        await asyncio.sleep(WAIT_MS / 1_000 - 0.1)
        assert not call.done()
        await asyncio.sleep(0.2)
        assert call.done()
        with pytest.raises(StreamEnded, match=f"within {WAIT_MS} ms"):
            await call

    virtual_loop.run(play())


def test_a_request_is_taken_up_to_its_size() -> None:
    async def play() -> None:
        assert await entered(entrance(), one_request(bytes(10))) == bytes(10)
        with pytest.raises(StreamEnded, match="11 bytes, more than 10"):
            await entered(entrance(), one_request(bytes(11)))

    virtual_loop.run(play())
