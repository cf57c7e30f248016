"""Whoever closes waits for what was given, also behind another who is at it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest

from tarry.client import sync
from tarry.client.blocking.loop_thread import LoopThread
from tarry.client.blocking.producer import Producer
from tarry.client.errors import Closed
from tarry.client.settings import Settings


class Twin:
    """An async producer, one message of which has no answer yet."""

    def __init__(self) -> None:
        self._closed = False
        self.asked, self.answer = threading.Event(), asyncio.Event()

    async def flush(self) -> None:
        self.asked.set()
        await self.answer.wait()

    async def close(self) -> None:
        self._closed = True
        await self.flush()


def test_a_second_close_waits_for_the_answers_as_the_first_does() -> None:
    thread, twin = LoopThread(), Twin()
    producer = Producer(cast(Any, twin), thread, Settings(servers=("127.0.0.1:1",)))
    closing = [threading.Thread(target=producer.close) for _ in range(2)]
    closing[0].start()
    assert twin.asked.wait(10)
    twin.asked.clear()
    closing[1].start()
    assert twin.asked.wait(10)
    assert all(one.is_alive() for one in closing)
    thread.soon(twin.answer.set)
    for one in closing:
        one.join(10)
        assert not one.is_alive()
    thread.stop()
    producer.close()  # the client's end has closed it


def test_a_close_in_a_callback_is_refused_and_changes_nothing() -> None:
    client = sync.connect("127.0.0.1:1")
    refused = list[BaseException]()

    def close() -> None:
        try:
            client.close()
        except RuntimeError as error:
            refused.append(error)

    async def call_back() -> None:
        close()

    client._thread.run(call_back())
    assert len(refused) == 1
    client.close()
    client.close()
    with pytest.raises(Closed):
        client.query()
