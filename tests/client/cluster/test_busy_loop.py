"""A client on its program's loop, whose turns are long, gets many events of grpc.aio in each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection

import pytest

from tarry.client.cluster.nodes import Node
from tarry.client.settings import Settings
from tarry.proto.grpc_loop import many_events_of
from tests.proto.test_grpc_server import ECHO, Echo, serving

CALLS = 600
"""Their answers are more events than the socket of grpc.aio has room for."""


def serve(pipe: Connection) -> None:
    """In another process: tell the port, and answer until told to end."""

    async def play() -> None:
        async with serving(Echo()) as port:
            pipe.send(port)
            await asyncio.to_thread(pipe.recv)

    asyncio.run(play())


@pytest.fixture
def address() -> Iterator[str]:
    """Of a server with its own process."""
    ours, theirs = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=serve, args=(theirs,))
    process.start()
    yield f"127.0.0.1:{ours.recv()}"
    ours.send("end")
    process.join()


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


def test_the_loops_own_method_is_back_behind_the_block() -> None:
    async def play() -> None:
        loop = asyncio.get_running_loop()
        before = vars(loop).copy()
        with many_events_of(loop):
            assert vars(loop) != before
        assert vars(loop) == before

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
