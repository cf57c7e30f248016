"""A client on its program's loop, whose turns are long, gets many events of grpc.aio in each."""

from __future__ import annotations

import array
import asyncio
import fcntl
import logging
import socket
import termios
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import pytest
from grpc import aio

from tarry.client.cluster.nodes import Node
from tarry.client.settings import Settings
from tarry.proto.grpc_loop import many_events_of
from tests.proto.test_grpc_server import ECHO, Echo, serving

CALLS = 600
"""Their answers are more events than the socket of grpc.aio has room for."""


def serve(pipe: Connection) -> None:
    """In another process: tell the port, and answer until killed."""

    async def play() -> None:
        async with serving(Echo()) as port:
            pipe.send(port)
            await asyncio.to_thread(pipe.recv)

    asyncio.run(play())


class Holding(Echo):
    """Tells of each call that it has come, and answers all in that order once the gate is open."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__()
        self.pipe, self.gate = pipe, asyncio.Event()

    async def echo(self, request: bytes, context: object) -> bytes:
        self.pipe.send(request)
        await self.gate.wait()
        return request


def serve_held(pipe: Connection) -> None:
    """In another process: tell the port, and open the gate when told to."""

    async def play() -> None:
        holding = Holding(pipe)
        async with serving(holding) as port:
            pipe.send(port)
            await asyncio.to_thread(pipe.recv)
            holding.gate.set()
            await asyncio.to_thread(pipe.recv)

    asyncio.run(play())


@contextmanager
def another_process(work: Callable[[Connection], None]) -> Iterator[tuple[Connection, str]]:
    """Have a server with its own process; yield what it is spoken to by, and its address."""
    ours, theirs = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=work, args=(theirs,))
    process.start()
    try:
        yield ours, f"127.0.0.1:{ours.recv()}"
    finally:
        process.kill()
        process.join()


@pytest.fixture
def address() -> Iterator[str]:
    """Of a server that answers at once."""
    with another_process(serve) as (_, address):
        yield address


async def turns_of_calls(address: str, calls: int) -> int:
    """Return how many turns of a busy loop pass until calls that are made at once have their answers."""
    node, busy = Node(address, Settings(servers=(address,))), Echo()
    call = node.channel.unary_unary(ECHO)
    await call(b"", wait_for_ready=True)
    busy.busy()
    answers = await asyncio.gather(*(call(b"%d" % number) for number in range(calls)))
    assert answers == [b"%d" % number for number in range(calls)]
    await node.channel.close()
    return busy.turn


def test_calls_at_once_take_few_turns_of_a_busy_loop(address: str) -> None:
    """With an event a turn, once the socket was full, it took 430."""
    turns = asyncio.run(turns_of_calls(address, CALLS))
    assert turns <= CALLS // 6, turns


def test_loops_of_several_threads_take_each_others_events(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """All read one socket: the events of one are handled in the turn of another."""
    with caplog.at_level(logging.ERROR), ThreadPoolExecutor(4) as threads:
        assert all(threads.map(lambda calls: asyncio.run(turns_of_calls(address, calls)), [CALLS // 4] * 4))
    assert not caplog.records


class NotingLoop(asyncio.SelectorEventLoop):
    """Knows grpc.aio's socket, and what went wrong in callbacks."""

    def __init__(self) -> None:
        super().__init__()
        self.grpc: list[socket.socket] = []
        self.wrong: list[object] = []
        self.set_exception_handler(lambda _, context: self.wrong.append(context.get("exception")))

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> Any:
        self.grpc.append(fd)
        return super().add_reader(fd, callback, *args)

    def hold_until(self, events: int) -> None:
        """Let the turn last until so many events of grpc.aio wait for the next one."""
        unread, until_s = array.array("i", [0]), time.monotonic() + 60
        while unread[0] < events and time.monotonic() < until_s:
            fcntl.ioctl(self.grpc[-1], termios.FIONREAD, unread)


async def held_call(address: str, pipe: Connection) -> aio.UnaryUnaryCall[bytes, bytes]:
    """Return a call that has come to the server and has no answer yet."""
    node = Node(address, Settings(servers=(address,)))
    call = node.channel.unary_unary(ECHO)(b"x", wait_for_ready=True)
    await asyncio.to_thread(pipe.recv)
    return call


def test_events_behind_those_of_a_closed_loop_are_not_lost() -> None:
    """An event of a closed loop is an error in the turn of the loop that takes it."""
    closed = [NotingLoop() for _ in range(3)]

    async def play(address: str, pipe: Connection) -> None:
        kept = []
        for other in closed:
            kept.append(await asyncio.to_thread(other.run_until_complete, held_call(address, pipe)))
            other.close()
        call = await held_call(address, pipe)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, NotingLoop)
        pipe.send("open")
        loop.hold_until(len(closed) + 1)
        assert await asyncio.wait_for(call, 10) == b"x"
        assert [str(one) for one in loop.wrong] == ["Event loop is closed"] * len(closed)

    with another_process(serve_held) as (pipe, address), asyncio.Runner(loop_factory=NotingLoop) as made:
        made.run(play(address, pipe))


def test_the_loops_own_method_is_back_behind_the_block() -> None:
    async def play() -> None:
        loop = asyncio.get_running_loop()
        before = vars(loop).copy()
        with many_events_of(loop):
            assert vars(loop) != before
        assert vars(loop) == before

    asyncio.run(play())


def test_a_programs_own_method_is_used_and_back_behind_the_block() -> None:
    async def play() -> None:
        loop, read = asyncio.get_running_loop(), []
        plain = loop.add_reader

        def own(fd: Any, *callback: Any) -> Any:
            read.append(fd)
            return plain(fd, *callback)

        loop.add_reader = own  # type: ignore[method-assign]
        one, other = socket.socketpair()
        with one, other, many_events_of(loop):
            loop.add_reader(one, print)
            loop.remove_reader(one)
        assert read == [one] and loop.add_reader is own

    asyncio.run(play())


def test_a_loop_that_allows_no_other_method_is_left_as_it_is() -> None:
    class Closed(asyncio.SelectorEventLoop):
        def __setattr__(self, name: str, value: object) -> None:
            if name == "add_reader":
                raise AttributeError(name)
            super().__setattr__(name, value)

    async def play() -> None:
        with many_events_of(asyncio.get_running_loop()):
            pass

    with asyncio.Runner(loop_factory=Closed) as made:
        made.run(play())


def test_a_loop_without_attributes_of_its_own_is_left_as_it_is() -> None:
    class Compiled:
        __slots__ = ()
        add_reader = asyncio.AbstractEventLoop.add_reader

    with many_events_of(Compiled()):  # type: ignore[arg-type]
        pass
