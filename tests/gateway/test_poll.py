"""What comes for a caller who leaves is told, or given to others at once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tarry.client.consumers.message import Columns, View
from tarry.gateway.http import consuming
from tarry.gateway.http.fields import ReceiveBody
from tarry.gateway.poll import Returns, received
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto.tarry_message_pb2 import Record


class Pulled:
    """A puller whose messages come once they are set, and what is given back to it."""

    def __init__(self) -> None:
        self.group = "g"
        self.comes: asyncio.Future[list[View]] = asyncio.get_running_loop().create_future()
        self.back: list[View] = []

    async def receive(self, *_: Any, **__: Any) -> list[View]:
        return await self.comes

    async def nack(self, messages: list[View], delay_ms: int) -> None:
        self.back.extend(messages)


async def turns_of_the_loop(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def views() -> list[View]:
    record = Record(body=b"x").SerializeToString()
    deliveries = consumer_pb.Deliveries(
        topic="t", offset=[0], hour=[1], global_index=[2], due_ms=[3], released_ms=[4], records=[record]
    )
    return [View(Columns(deliveries, 10, 0), 0, 0)]


@pytest.mark.parametrize("turns", range(6))
async def test_what_comes_as_its_caller_is_cancelled_is_told_or_given_back(
    turns: int,
) -> None:
    pulled, returns, never, sent = Pulled(), Returns(), asyncio.Event(), views()
    puller: Any = pulled
    receiving = asyncio.create_task(received(puller, 1, 1_000, returns, never.wait()))
    await turns_of_the_loop(3)
    pulled.comes.set_result(sent)
    await turns_of_the_loop(turns)
    receiving.cancel()
    (told,) = await asyncio.gather(receiving, return_exceptions=True)
    await returns.end()
    assert sent in (told, pulled.back) or turns == 0  # before it has come to the puller nobody has it


async def test_what_comes_for_who_is_gone_by_http_is_given_back() -> None:
    pulled, returns = Pulled(), Returns()

    async def disconnected() -> bool:
        await pulled.comes  # in the turn in which the messages come
        return True

    client = SimpleNamespace(puller=lambda *_, **__: pulled)
    limits = SimpleNamespace(receive_messages_max=10, wait_ms_max=1_000)
    gateway = SimpleNamespace(limits=limits, returns=returns, ending=asyncio.Event())
    call: Any = SimpleNamespace(
        body=ReceiveBody(messages_max=1, wait_ms=1_000),
        gateway=gateway,
        access=SimpleNamespace(client=client, known=True),
        path={"topic": "t", "group": "g"},
        disconnected=disconnected,
        request=SimpleNamespace(is_disconnected=disconnected),
    )
    answer = asyncio.create_task(consuming.receive(call))
    await turns_of_the_loop(3)
    sent = views()
    pulled.comes.set_result(sent)
    await answer
    assert pulled.back == sent
