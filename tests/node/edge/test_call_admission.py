"""Calls whose request does not come are ended: in time, and sooner where there are many."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from tarry.node.config import Connections
from tarry.node.edge.call_admission import GRACE_S, SUBSCRIBING, Entrance
from tarry.node.edge.connection_limits import options
from tarry.node.edge.grpc_status import DETAILS_KEY, refusal_in
from tarry.proto.reasons import Reason
from tarry.replication.state_machine.refusal import Refusal
from tests.node.lone_leader import until
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


async def echoed(requests: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request


async def given_back(request: bytes, _: object) -> bytes:
    return request


METHODS = {
    "Stream": grpc.stream_stream_rpc_method_handler(echoed),
    "One": grpc.unary_unary_rpc_method_handler(given_back),
}
BOUNDS = Connections(calls_max=2, subscribe_ms=1_000, request_ms=WAIT_MS)


def serving() -> Entrance:
    """With a method of each kind, and one that consumers call."""
    service, _, method = SUBSCRIBING.strip("/").partition("/")
    methods = {"tarry.v1.Any": METHODS, service: {method: METHODS["Stream"]}}
    handlers: Any = [grpc.method_handlers_generic_handler(name, of) for name, of in methods.items()]
    return Entrance(handlers, lambda path, metadata: None, BOUNDS, request_bytes_max=lambda path: 10)


def called(to: Entrance, path: str) -> Any:
    details: Any = SimpleNamespace(method=path, invocation_metadata=())
    handler: Any = to.service(details)
    return handler.stream_stream or handler.stream_unary


async def requests_of(*sizes: int) -> AsyncIterator[bytes]:
    for size in sizes:
        yield bytes(size)


def test_calls_of_each_kind_are_counted_while_they_are_under_way() -> None:
    async def play() -> None:
        to = serving()
        streams = [called(to, "/tarry.v1.Any/Stream")(requests_of(1, 2), Context()) for _ in range(2)]
        assert [await anext(stream) for stream in streams] == [bytes(1)] * 2
        assert to.calls == 2
        with pytest.raises(StreamEnded, match="2 calls are under way"):
            await called(to, "/tarry.v1.Any/One")(requests_of(3), Context())
        for stream in streams:
            assert [len(response) async for response in stream] == [2]
        assert to.calls == 0
        assert await called(to, "/tarry.v1.Any/One")(requests_of(3), Context()) == bytes(3)
        assert to.calls == 0
        assert to._waiting == {}

    virtual_loop.run(play())


def test_each_request_of_a_stream_is_taken_up_to_its_size_and_a_call_needs_one() -> None:
    async def play() -> None:
        stream = called(serving(), "/tarry.v1.Any/Stream")(requests_of(1, 10, 11), Context())
        assert [len(await anext(stream)) for _ in range(2)] == [1, 10]
        with pytest.raises(StreamEnded, match="11 bytes, more than 10"):
            await anext(stream)
        assert [
            one async for one in called(serving(), "/tarry.v1.Any/Stream")(requests_of(), Context())
        ] == []
        with pytest.raises(StreamEnded, match="ended without a request"):
            await called(serving(), "/tarry.v1.Any/One")(requests_of(), Context())

    virtual_loop.run(play())


@pytest.mark.parametrize(("path", "after_ms"), [(SUBSCRIBING, 1_000), ("/tarry.v1.Any/Stream", WAIT_MS)])
def test_a_consumer_is_to_say_sooner_than_others_what_it_wants(path: str, after_ms: int) -> None:
    async def play() -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        with pytest.raises(StreamEnded, match=f"within {after_ms} ms"):
            await anext(called(serving(), path)(nothing(), Context()))
        assert round(1_000 * (loop.time() - begun)) == after_ms

    virtual_loop.run(play())


def test_connections_leave_half_of_the_descriptors_to_files() -> None:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    for asked, allowed in ((7, 7), (files, files // 2)):
        told = dict(options(Connections(connections_max=asked)))
        assert told["grpc.max_allowed_incoming_connections"] == allowed


def test_grpc_holds_connections_to_the_bounds_of_the_configuration() -> None:
    told = dict(options(Connections(handshake_ms=3_000, idle_ms=4_000, connection_calls_max=5, calls_max=6)))
    assert told["grpc.server_handshake_timeout_ms"] == 3_000
    assert told["grpc.max_connection_idle_ms"] == 4_000
    assert told["grpc.max_concurrent_streams"] == 5
    assert told["grpc.server.max_pending_requests_hard_limit"] == 6


async def endless(requests: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request
    await asyncio.Event().wait()


@pytest.mark.parametrize("known", [True, False])
async def test_streams_whose_callers_may_do_less_now_are_ended_with_the_reason_and_no_others(
    known: bool,
) -> None:
    refused: set[str] = set()

    def admit(path: str, metadata: Any) -> Refusal | None:
        name = dict(metadata)["name"]
        return Refusal(Reason.UNAUTHENTICATED, "unknown now") if name in refused else None

    methods = {"Stream": grpc.stream_stream_rpc_method_handler(endless)}
    to = Entrance([grpc.method_handlers_generic_handler("any", methods)], admit, Connections())
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((to,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel, asyncio.timeout(30):
        streams = {}
        for name in ("one", "other"):
            streams[name] = channel.stream_stream("/any/Stream")(metadata=(("name", name),))
            await streams[name].write(b"x")
            assert await streams[name].read() == b"x"
        if not known:
            refused.add("one")
        assert to.end_streams(lambda metadata: dict(metadata)["name"] == "one") == 1
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await streams["one"].read()
        reason = Reason.RIGHTS_CHANGED if known else Reason.UNAUTHENTICATED
        details = dict(ended.value.trailing_metadata() or ())[DETAILS_KEY]
        assert isinstance(details, bytes)
        said = refusal_in(details)
        assert said is not None
        assert said.reason is reason
        await streams["other"].write(b"y")
        assert await streams["other"].read() == b"y"
        assert to.end_streams(lambda metadata: dict(metadata)["name"] == "one") == 0
        streams["other"].cancel()
    await server.stop(None)
    await until(lambda: to.calls == 0)  # the call that was cancelled ends in a task of its own
    assert to._streams == {}
