"""grpc.aio on a loop whose turns are long: calls begin, and events arrive, many in a turn."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import socket
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import asynccontextmanager
from multiprocessing import get_context
from threading import Event
from typing import Any
from weakref import WeakSet

import grpc
import pytest
from grpc import aio
from grpc._cython import cygrpc

from tarry.proto import grpc_server
from tarry.proto.grpc_loop import run

CALLS = 200
"""Each has some four events: more than the socket of grpc.aio has room for."""
LARGE = bytes(4 << 20)
ECHO = "/a.Service/Echo"


def call_at_once(port: int, calls: int) -> None:
    """In another process: the turns of the loop under test are the server's alone."""

    async def play() -> None:
        async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary(ECHO)
            await asyncio.gather(*(call(b"%d" % number, wait_for_ready=True) for number in range(calls)))

    asyncio.run(play())


class Echo(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Answers with the request. Counts turns, and notes in which each call began."""

    def __init__(self) -> None:
        self.turn = 0
        self.begun: list[int] = []

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of the method, as the first step of a call."""
        self.begun.append(self.turn)
        return grpc.unary_unary_rpc_method_handler(self.echo) if details.method == ECHO else None

    async def echo(self, request: bytes, context: Any) -> bytes:
        return request

    def busy(self) -> None:
        """Take some milliseconds of each turn, in which the core goes on."""
        self.turn += 1
        hashlib.sha256(LARGE).digest()  # without the interpreter's lock, as LMDB's writes are
        asyncio.get_running_loop().call_soon(self.busy)


@asynccontextmanager
async def serving(echo: Echo, **arguments: Any) -> AsyncIterator[int]:
    server = grpc_server.server(**arguments)
    server.add_generic_rpc_handlers((echo,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


async def exit_code_of(target: Callable[..., None], *arguments: Any) -> int | None:
    process = get_context("spawn").Process(target=target, args=arguments)
    await asyncio.to_thread(process.start)
    await asyncio.to_thread(process.join)
    return process.exitcode


def test_calls_that_come_together_begin_within_few_turns_of_a_busy_loop() -> None:
    """With a call a turn, or an event a turn once the socket is full, it took 200 to 1,000."""

    async def play() -> None:
        echo = Echo()
        async with serving(echo) as port:
            echo.busy()
            assert await exit_code_of(call_at_once, port, CALLS) == 0
        turns = echo.begun[-1] - echo.begun[0]
        assert len(echo.begun) == CALLS and turns <= CALLS // 3, turns

    run(play())


def test_a_turn_begins_no_more_calls_than_its_bound() -> None:
    async def play() -> None:
        echo = Echo()
        async with serving(echo) as port:
            echo.busy()
            assert await exit_code_of(call_at_once, port, CALLS) == 0
        assert 1 < max(map(echo.begun.count, echo.begun)) <= grpc_server.TURN_CALLS_MAX

    run(play())


def test_a_server_ends_while_it_waits_for_calls_and_serves_no_more() -> None:
    async def play() -> None:
        echo = Echo()
        async with serving(echo) as port, aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            assert await channel.unary_unary(ECHO)(b"x", wait_for_ready=True) == b"x"
        async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(aio.AioRpcError):
                await channel.unary_unary(ECHO)(b"x", timeout=5)
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
            call = channel.unary_unary(ECHO)
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


def test_a_path_that_is_no_text_is_refused_and_the_server_goes_on() -> None:
    """Of newer versions of grpc.aio it ends the server: nobody is answered any more, and nothing is said."""

    async def play() -> None:
        async with serving(Echo()) as port, aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            for path in (b"/a.Service/\xff", b"\xff\xfe", "/a.Service/Other"):
                with pytest.raises(aio.AioRpcError) as refused:
                    await channel.unary_unary(path)(b"x", timeout=60, wait_for_ready=True)
                assert refused.value.code() in {grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNIMPLEMENTED}
            assert await channel.unary_unary(ECHO)(b"x", timeout=60) == b"x"

    run(play())


def fail_while_serving() -> None:
    async def play() -> None:
        server = grpc_server.server()
        server.add_insecure_port("127.0.0.1:0")
        await server.start()
        await asyncio.sleep(0)
        raise ZeroDivisionError

    with contextlib.suppress(ZeroDivisionError):
        run(play())


async def test_a_process_ends_whose_server_was_not_stopped() -> None:
    """In a process of its own, for in this one the garbage collection would wait for the server for ever."""
    assert await exit_code_of(fail_while_serving) == 0


def test_a_call_that_has_ended_is_kept_by_nobody() -> None:
    class Kept: ...

    async def play() -> None:
        kept = WeakSet[Kept]()

        class Keeping(Echo):
            async def echo(self, request: bytes, context: Any) -> bytes:
                one = Kept()
                kept.add(one)
                context.add_done_callback(lambda _: one)
                return request

        async with serving(Keeping()) as port, aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary(ECHO)
            for _ in range(2):
                await asyncio.gather(*(call(b"x", wait_for_ready=True) for _ in range(50)))
        gc.collect()
        assert not kept

    run(play())


def test_grpcs_own_class_is_back_once_a_server_is_made() -> None:
    async def play() -> None:
        plain = cygrpc.AioServer
        made = grpc_server.server()
        assert type(made._server) is not plain and cygrpc.AioServer is plain  # type: ignore[attr-defined]

    run(play())


def test_servers_that_threads_make_at_once_all_take_many_calls_in_a_turn() -> None:
    begun, may_end = Event(), Event()

    class Waits(list[grpc.aio.ServerInterceptor]):
        """grpc.aio goes over it as the server is made."""

        def __iter__(self) -> Any:
            begun.set()
            may_end.wait(10)
            return super().__iter__()

        def __bool__(self) -> bool:
            return True

    async def made(**arguments: Any) -> str:
        return type(grpc_server.server(**arguments)._server).__name__  # type: ignore[attr-defined]

    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(lambda: asyncio.run(made(interceptors=Waits())))
        assert begun.wait(10)
        other = threads.submit(lambda: asyncio.run(made()))
        wait([other], timeout=0.2)  # as long as it is not held up, it ends
        may_end.set()
        assert one.result() == other.result() == "_ManyCalls"


def test_a_call_that_comes_behind_a_failure_is_kept_for_nobody() -> None:
    """The core tells both in one turn; nobody takes calls any more."""
    coming: list[asyncio.Future[object]] = []

    class Core(cygrpc.AioServer):  # type: ignore[misc]
        async def _request_call(self) -> object:
            coming.append(asyncio.get_running_loop().create_future())
            return await coming[-1]

    class Server(grpc_server._ManyCalls, Core): ...

    async def play() -> None:
        server = Server(asyncio.get_running_loop(), None, (), (), (), None)
        taking = asyncio.create_task(server._request_call())
        for _ in range(2):
            await asyncio.sleep(0)
        coming[0].set_exception(ZeroDivisionError())
        coming[1].set_result("a call")
        with pytest.raises(ZeroDivisionError):
            await taking
        await asyncio.sleep(0)
        assert not server._come

    asyncio.run(play())


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
