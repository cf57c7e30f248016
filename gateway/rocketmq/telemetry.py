"""Telemetry: the stream on which a client tells its settings, and is answered.

The answer comes twice: Node's client waits for ever where the first comes before all of its routes, and any
later one ends its wait; to the others it is nothing new. The stream's metadata is sent as it opens: Rust's
client waits for it before it sends anything.

On the same stream a producer is asked how a transaction ended.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from tarry.gateway.rocketmq.call import Call, Context, left_to_grpc
from tarry.gateway.rocketmq.codes import Refusal
from tarry.gateway.rocketmq.protocol import service_pb2 as service
from tarry.gateway.rocketmq.protocol.definition_pb2 import Code
from tarry.gateway.rocketmq.requests import parsed
from tarry.gateway.rocketmq.settings import answer

AGAIN_S: Final = 1.0
"""After which settings are answered once more."""


async def talk(call: Call, context: Context) -> None:
    """Answer a client's settings, and ask it about transactions, until it or the gateway ends.

    Raises Refusal, of what it sends, and Unread, where it reads nothing.
    """
    gateway = call.gateway
    told: service.TelemetryCommand | None = None
    with (
        gateway.presence.stream(call.caller),
        gateway.checks.producer(call.caller) as producer,
    ):
        ending = asyncio.ensure_future(gateway.ending.wait())
        reading = left_to_grpc(context.read())
        asked = asyncio.ensure_future(producer.next())
        next_s: float | None = time.monotonic() + call.budget_s  # settings come, or go again
        try:
            while True:
                timeout_s = None if next_s is None else max(0.0, next_s - time.monotonic())
                await asyncio.wait(
                    {reading, ending, asked}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
                )
                if ending.done():
                    return
                if asked.done():
                    await call.write(context.write, [asked.result()])
                    asked = asyncio.ensure_future(producer.next())
                if next_s is not None and time.monotonic() >= next_s and not reading.done():
                    if told is None:
                        raise Refusal(Code.REQUEST_TIMEOUT, "the settings have not come in time")
                    await call.write(context.write, [told])
                    told = next_s = None
                if not reading.done():
                    continue
                told_by_client = reading.result()
                if not isinstance(told_by_client, bytes):  # gRPC's EOF
                    return
                command = parsed(service.TelemetryCommand, told_by_client)
                reading = left_to_grpc(context.read())
                if command.WhichOneof("command") == "settings":
                    told = await answer(call, command.settings)
                    if told.status.code == Code.OK:
                        producer.publishes(command.settings.publishing.topics, call.namespace)
                    await call.write(context.write, [told])
                    next_s = time.monotonic() + AGAIN_S
        finally:
            for task in (ending, asked):
                task.cancel()
            await asyncio.gather(ending, asked, return_exceptions=True)
