"""Connections to a real socket: whoever sends nothing, or reads nothing, holds none of them for long."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from tarry.gateway.http.config import Limits
from tarry.gateway.http.server import Certificate, _Server, uvicorn_config
from tests.cluster.authority import Authority
from tests.gateway.conftest import alone

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
LONG_S = 20
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def served(app: ASGIApp, **limits: Any) -> AsyncIterator[int]:
    """Serve an application as the gateway is served; yield the port."""
    config, state = uvicorn_config(app, Limits(**limits)), ServerState()
    config.load()
    made: Any = config.http_protocol_class
    loop = asyncio.get_running_loop()
    listener = socket.create_server(("127.0.0.1", 0))
    server = await loop.create_server(
        lambda: made(config=config, server_state=state, app_state={}, _loop=loop), sock=listener
    )
    try:
        yield listener.getsockname()[1]
    finally:
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()
        await asyncio.gather(*state.tasks)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Streams]:
    """Yield a connection; whoever waits on it waits for so long at most."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(LONG_S):
            yield reader, writer
    finally:
        writer.close()


async def is_answered(port: int) -> bool:
    async with connected(port) as (reader, writer):
        try:
            writer.write(HEAD + b"\r\n")
            return (await reader.read(100)).startswith(b"HTTP/1.1 200 ")
        except ConnectionError:
            return False


@pytest.mark.parametrize("sent", [b"", b"GET /hea", HEAD, HEAD + b"\r\n" + HEAD])
async def test_a_request_whose_head_does_not_come_is_given_up(sent: bytes) -> None:
    async with served(alone(), head_ms=50) as port, connected(port) as (reader, writer):
        writer.write(sent)
        answer = await reader.read()  # until the gateway ends it
        assert answer.startswith(b"HTTP/1.1 200 ") == (HEAD + b"\r\n" in sent)


async def test_the_rest_of_a_body_that_was_refused_is_not_waited_for() -> None:
    async with served(alone(), head_ms=50) as port, connected(port) as (reader, writer):
        writer.write(b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 404 ")
        writer.write(b"x")  # ends uvicorn's own wait for the next request
        await reader.read()


async def test_a_request_under_way_is_not_cut_off_by_the_time_for_its_head() -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.2)  # longer than its head may take
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    async with served(slow, head_ms=50) as port:
        assert await is_answered(port)


async def test_connections_beyond_the_limit_are_closed_at_once() -> None:
    async with served(alone(), connections_max=2) as port:
        async with connected(port), connected(port):
            assert not await is_answered(port)
        async with asyncio.timeout(LONG_S):
            while not await is_answered(port):  # until it has noticed that they are gone
                pass


async def test_a_handshake_that_does_not_come_is_given_up(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.sign("gateway", "/CN=gateway")
    certificate = Certificate(tmp_path / "gateway.pem", tmp_path / "gateway.key")
    config = uvicorn_config(alone(), Limits(), certificate)
    server, listener = _Server(config, lambda: None, 0.05), socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        async with connected(listener.getsockname()[1]) as (reader, _):
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
    finally:
        server.should_exit = True
        await serving


async def test_a_stream_whose_caller_does_not_read_ends() -> None:
    ended = asyncio.Event()

    async def events() -> AsyncIterator[bytes]:
        try:
            while True:
                await asyncio.sleep(0)
                yield b"x" * 65_536
        finally:
            ended.set()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        await StreamingResponse(events())(scope, receive, send)

    async with served(endless, answer_ms=50) as port, connected(port) as (_, writer):
        writer.write(HEAD + b"\r\n")
        await ended.wait()
