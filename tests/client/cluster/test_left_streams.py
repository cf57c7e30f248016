"""A stream of answers that its caller leaves before its end."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import aclosing

import grpc
from grpc import aio

from tarry.client.cluster.calls import answers

SOON_S = 10.0


async def test_a_call_ends_at_the_node_as_its_caller_goes_on_without_the_rest() -> None:
    ended = asyncio.Event()

    async def endless(_: bytes, context: aio.ServicerContext[bytes, bytes]) -> AsyncIterator[bytes]:
        try:
            while True:
                yield bytes(1_000)
        finally:
            ended.set()

    server = aio.server()
    handlers = {"Endless": grpc.unary_stream_rpc_method_handler(endless)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Streams", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    gc.disable()  # which ends calls that nobody has, some time
    try:
        async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_stream("/test.Streams/Endless")(b"")
            async with aclosing(answers(call)) as left:
                async for answer in left:
                    assert len(answer) == 1_000
                    break
            await asyncio.wait_for(ended.wait(), SOON_S)
            assert call.cancelled()
    finally:
        gc.enable()
        await server.stop(None)
