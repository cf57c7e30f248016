"""grpc.aio on a loop whose turns are long: calls begin, and events arrive, many in a turn."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from multiprocessing import get_context
from typing import Any

import grpc
import pytest
from grpc import aio
from grpc._cython import cygrpc

from tarry.proto import grpc_server
from tarry.proto.grpc_loop import GrpcEventLoop

CALLS = 200
"""Each has some four events: more than the socket of grpc.aio has room for."""
LARGE = bytes(4 << 20)


def run(play: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=GrpcEventLoop) as runner:
        runner.run(play)


def call_at_once(port: int, calls: int) -> None:
    """In another process: the turns of the loop under test are the server's alone."""

    async def play() -> None:
        async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary("/a.Service/Echo")
            await asyncio.gather(*(call(b"%d" % number, wait_for_ready=True) for number in range(calls)))

    asyncio.run(play())


class Echo:
    """Answers with the request. Counts turns, and notes in which each call began."""

    def __init__(self) -> None:
        self.turn = 0
        self.begun: list[int] = []

    async def echo(self, request: bytes, context: object) -> bytes:
        self.begun.append(self.turn)
        return request

    def busy(self) -> None:
        """Take some milliseconds of each turn, in which the core goes on."""
        self.turn += 1
        hashlib.sha256(LARGE).digest()  # without the interpreter's lock, as LMDB's writes are
        asyncio.get_running_loop().call_soon(self.busy)


@asynccontextmanager
async def serving(echo: Echo, **arguments: Any) -> AsyncIterator[int]:
    server = grpc_server.server(**arguments)
    methods = {"Echo": grpc.unary_unary_rpc_method_handler(echo.echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a.Service", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


async def called(port: int, calls: int) -> None:
    process = get_context("spawn").Process(target=call_at_once, args=(port, calls))
    await asyncio.to_thread(process.start)
    await asyncio.to_thread(process.join)
    assert process.exitcode == 0


def test_calls_that_come_together_begin_within_few_turns_of_a_busy_loop() -> None:
    """With a call a turn, or an event a turn once the socket is full, it took 200 to 1,000."""

    async def play() -> None:
        echo = Echo()
        async with serving(echo) as port:
            echo.busy()
            await called(port, CALLS)
        turns = echo.begun[-1] - echo.begun[0]
        assert len(echo.begun) == CALLS and turns <= CALLS // 3, turns

    run(play())


def test_a_turn_begins_no_more_calls_than_are_asked_for() -> None:
    async def play() -> None:
        echo = Echo()
        async with serving(echo) as port:
            echo.busy()
            await called(port, CALLS)
        assert max(map(echo.begun.count, echo.begun)) <= 2 * grpc_server.CALLS_ASKED

    run(play())


def test_a_server_ends_while_it_waits_for_calls_and_serves_no_more() -> None:
    async def play() -> None:
        echo = Echo()
        async with serving(echo) as port, aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            assert await channel.unary_unary("/a.Service/Echo")(b"x", wait_for_ready=True) == b"x"
        async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(aio.AioRpcError):
                await channel.unary_unary("/a.Service/Echo")(b"x", timeout=5)
        left = {task.get_coro().__qualname__ for task in asyncio.all_tasks()}  # type: ignore[union-attr]
        assert not any("_ManyCalls" in name for name in left)

    run(play())


def test_a_limit_of_calls_holds() -> None:
    async def play() -> None:
        gate = asyncio.Event()

        class Held(Echo):
            async def echo(self, request: bytes, context: object) -> bytes:
                await gate.wait()
                return request

        async with (
            serving(Held(), maximum_concurrent_rpcs=3) as port,
            aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        ):
            call = channel.unary_unary("/a.Service/Echo")
            calls = [asyncio.ensure_future(call(b"x", wait_for_ready=True)) for _ in range(8)]
            ends: list[object] = []
            for end in asyncio.as_completed(calls):
                try:
                    ends.append(await end)
                except aio.AioRpcError as error:
                    ends.append(error.code())
                if len(ends) == 5:
                    gate.set()
        assert ends == [grpc.StatusCode.RESOURCE_EXHAUSTED] * 5 + [b"x"] * 3

    run(play())


def test_another_version_without_these_methods_serves_as_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(cygrpc.AioServer):  # type: ignore[misc]
        def __getattribute__(self, name: str) -> Any:
            return super().__getattribute__(name)

    monkeypatch.setattr(grpc_server, "_CORE_SERVER", object)
    monkeypatch.setattr(cygrpc, "AioServer", Other)

    async def play() -> None:
        server = grpc_server.server()
        assert type(server._server) is Other  # type: ignore[attr-defined]

    run(play())


def test_grpcs_own_class_is_back_once_a_server_is_made() -> None:
    async def play() -> None:
        plain = cygrpc.AioServer
        made = grpc_server.server()
        assert type(made._server) is not plain and cygrpc.AioServer is plain  # type: ignore[attr-defined]

    run(play())


def test_the_loop_reads_other_sockets_as_asyncio_does() -> None:
    """Only grpc.aio's reader loses bytes that it has no use for."""

    async def play() -> None:
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        read: list[bytes] = []
        come = asyncio.Event()

        def take(at_once: int) -> None:
            read.append(one.recv(at_once))
            if b"".join(read) == b"bytes":
                come.set()

        loop.add_reader(one, take, 2)
        other.sendall(b"bytes")
        await come.wait()
        loop.remove_reader(one)
        one.close()
        other.close()
        assert read == [b"by", b"te", b"s"]

    run(play())
