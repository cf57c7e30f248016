"""Callers who say nothing, or have no token: they cost a node next to nothing, and others notice nothing."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tarry.client.local.cluster import LocalCluster, Setting
from tarry.proto import tarry_consumer_pb2_grpc, tarry_producer_pb2_grpc
from tarry.proto.tarry_consumer_pb2 import ConsumeRequest, Subscribe
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_producer_pb2 import ScheduleRequest
from tests.cluster.disposable import Disposable
from tests.cluster.wire import refusal

pytestmark = pytest.mark.beside

STREAMS, SOCKETS, CHANNELS = 2_000, 600, 4
BEARING = [("authorization", "Bearer root")]
STREAM_BYTES_MAX = 16 << 10
"""Of a node's memory, for each silent stream; one that is held takes 23 KiB."""
CONNECTIONS: dict[str, Setting] = {
    "handshake_ms": 1_000,
    "subscribe_ms": 1_000,
    "request_ms": 2_000,
    "waiting_calls_max": 200,
}
TOKENS: dict[str, Setting] = {"root": {"produce": ["*"], "consume": ["*"], "operate": True}}


def started(folder: Path, **settings: Setting) -> Iterator[LocalCluster]:
    token = "root" if "tokens" in settings else ""
    with Disposable(1, folder, {"connections": CONNECTIONS, **settings}, token=token) as cluster:
        cluster.start()
        asyncio.run(serving(cluster))
        yield cluster


async def serving(cluster: LocalCluster) -> None:
    async with channel(cluster) as own, asyncio.timeout(30):
        ask: Any = health_pb2_grpc.HealthStub(own)
        while True:
            request = health_pb2.HealthCheckRequest()
            if (
                await ask.Check(request, wait_for_ready=True)
            ).status == health_pb2.HealthCheckResponse.SERVING:
                return
            await asyncio.sleep(0.05)


@pytest.fixture(scope="module", params=["plain", "TLS"])
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    """A node with tokens."""
    folder = tmp_path_factory.mktemp("guarded")
    tls = {"tls": pair(folder)} if request.param == "TLS" else {}
    yield from started(folder, tokens=TOKENS, peer_token="between-nodes", **tls)


def pair(folder: Path) -> dict[str, Setting]:
    """Make a certificate that proves itself, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed: no certificate to test with")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    made = (
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=n1 "
        f"-addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {certificate}"
    )
    subprocess.run([openssl, *made.split()], check=True, capture_output=True)
    return {"certificate": str(certificate), "key": str(key)}


@pytest.fixture(scope="module")
def unguarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A node that knows no tokens."""
    yield from started(tmp_path_factory.mktemp("unguarded"))


def process(cluster: LocalCluster) -> psutil.Process:
    (node,) = cluster.nodes.values()
    assert node.process is not None
    return psutil.Process(node.process.pid)


def channel(cluster: LocalCluster) -> grpc.aio.Channel:
    (node,) = cluster.nodes.values()
    options = [("grpc.use_local_subchannel_pool", 1)]
    tls: Any = cluster.settings.get("tls")
    if tls is None:
        return grpc.aio.insecure_channel(node.address, options=options)
    trusted = grpc.ssl_channel_credentials(Path(tls["certificate"]).read_bytes())
    return grpc.aio.secure_channel(node.address, trusted, options=options)


class Honest:
    """A client that schedules messages and receives them, one after another."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self.received = 0

    async def run(self) -> None:
        async with channel(self._cluster) as own:
            producer: Any = tarry_producer_pb2_grpc.ProducerServiceStub(own)
            consumer: Any = tarry_consumer_pb2_grpc.ConsumerServiceStub(own)
            stream = consumer.Consume(metadata=BEARING)
            await stream.write(ConsumeRequest(subscribe=Subscribe(topic="t", group="g", credit=1_000)))
            await stream.read()
            while True:
                request = ScheduleRequest(topic="t", record=Record(body=b"x"), delay_ms=1)
                await producer.Schedule(request, timeout=5, metadata=BEARING)
                response = await asyncio.wait_for(stream.read(), 5)
                self.received += len(response.deliveries.offset)
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def undisturbed(cluster: LocalCluster) -> Any:
    """An honest client is served throughout."""
    honest = Honest(cluster)
    running = asyncio.ensure_future(honest.run())
    while not honest.received:
        assert not running.done(), running.exception()
        await asyncio.sleep(0.01)
    yield
    seen = honest.received
    while honest.received < seen + 3:
        assert not running.done(), running.exception()
        await asyncio.sleep(0.01)
    running.cancel()


async def silent(channels: list[grpc.aio.Channel], count: int) -> list[Any]:
    stubs: list[Any] = [tarry_consumer_pb2_grpc.ConsumerServiceStub(each) for each in channels]
    return [stubs[n % len(stubs)].Consume() for n in range(count)]


def silent_call(strange: grpc.aio.Channel, path: str) -> Any:
    method: Any = strange.stream_stream(path, None, None)
    return method()


def own_bytes(cluster: LocalCluster) -> int:
    memory = process(cluster).memory_info()
    return int(memory.rss - memory.shared)


async def hold(cluster: LocalCluster, calls_max: int) -> tuple[float, set[grpc.StatusCode]]:
    """Open silent streams twice; return bytes of memory for each of the second time, and how they ended.

    Of the first time memory stays with the allocator.
    """
    codes: set[grpc.StatusCode] = set()
    grown = 0
    for _ in range(2):
        channels = [channel(cluster) for _ in range(CHANNELS)]
        before = own_bytes(cluster)
        calls = await silent(channels, calls_max)
        grown = 0
        ends = asyncio.gather(*(call.code() for call in calls))
        while not ends.done():
            grown = max(grown, own_bytes(cluster) - before)
            await asyncio.wait([ends], timeout=0.1)
        codes |= set(await ends)
        for each in channels:
            await each.close(None)
    return grown / calls_max, codes


async def test_streams_without_a_token_are_refused_at_once_and_hold_nothing(guarded: LocalCluster) -> None:
    async with undisturbed(guarded):
        async with asyncio.timeout(60):
            each_bytes, codes = await hold(guarded, STREAMS)
    assert codes == {grpc.StatusCode.UNAUTHENTICATED}
    assert each_bytes < STREAM_BYTES_MAX


async def test_streams_that_stay_silent_are_ended_where_no_token_is_asked_for(
    unguarded: LocalCluster,
) -> None:
    async with undisturbed(unguarded):
        async with asyncio.timeout(60):
            each_bytes, codes = await hold(unguarded, STREAMS)
    assert codes == {grpc.StatusCode.FAILED_PRECONDITION}
    assert each_bytes < 30 << 10


def client_hello() -> bytes:
    """Return what begins a handshake of TLS."""
    tls, out = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.MemoryBIO()
    tls.check_hostname = False
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    return out.read()


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.mark.parametrize(
    "said", [b"", PREFACE, client_hello()], ids=["nothing", "half a handshake", "TLS begun"]
)
async def test_sockets_that_stay_silent_are_closed(guarded: LocalCluster, said: bytes) -> None:
    (node,) = guarded.nodes.values()
    host, _, port = node.address.rpartition(":")
    async with undisturbed(guarded):
        sockets = [socket.create_connection((host, int(port)), 5) for _ in range(SOCKETS)]
        try:
            for one in sockets:
                one.sendall(said)
                one.setblocking(False)
            before_s = time.monotonic()
            while any(not closed(one) for one in sockets):
                assert time.monotonic() < before_s + 20, "a silent socket is left open"
                await asyncio.sleep(0.1)
        finally:
            for one in sockets:
                one.close()


def closed(one: socket.socket) -> bool:
    try:
        while one.recv(4096):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


@pytest.mark.parametrize(
    "path",
    [
        "/tarry.v1.ProducerService/ScheduleBatch",
        "/tarry.v1.ProducerService/ScheduleStream",
        "/tarry.v1.ConsumerService/Receive",
        "/tarry.v1.OperatorService/ExportLedger",
        "/tarry.v1.OperatorService/Backup",
        "/tarry.v1.OperatorService/ExportPending",
        "/tarry.v1.PeerService/FetchSnapshot",
        "/tarry.v1.PeerService/Meet",
        "/tarry.v1.RecordService/FetchIndex",
        "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ],
)
async def test_a_call_of_any_kind_is_refused_by_its_headers_alone(guarded: LocalCluster, path: str) -> None:
    async with channel(guarded) as strange, asyncio.timeout(10):
        assert await silent_call(strange, path).code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_call_whose_request_never_comes_is_ended(unguarded: LocalCluster) -> None:
    async with channel(unguarded) as strange, asyncio.timeout(20):
        call = silent_call(strange, "/tarry.v1.ProducerService/ScheduleBatch")
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "2000 ms" in await call.details()


async def test_a_request_beyond_every_limit_is_refused_before_it_is_parsed(unguarded: LocalCluster) -> None:
    async with channel(unguarded) as strange, asyncio.timeout(20):
        call = strange.unary_unary("/tarry.v1.OperatorService/ClusterStatus", None, None)(bytes(8 << 20))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
    assert refusal(caught.value).reason == "BATCH_TOO_LARGE"


async def test_everybody_may_ask_for_health_and_who_has_a_token_for_all_of_it(guarded: LocalCluster) -> None:
    async with channel(guarded) as own, asyncio.timeout(20):
        health: Any = health_pb2_grpc.HealthStub(own)
        serving = health_pb2.HealthCheckResponse.SERVING
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == serving
        watch = health.Watch(health_pb2.HealthCheckRequest(), metadata=BEARING)
        assert (await watch.read()).status == serving
        reflected: Any = reflection_pb2_grpc.ServerReflectionStub(own)
        shown = reflected.ServerReflectionInfo(metadata=BEARING)
        await shown.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        names = {service.name for service in (await shown.read()).list_services_response.service}
        assert "tarry.v1.ProducerService" in names
        watch.cancel()
        shown.cancel()


async def test_a_node_takes_no_more_connections_and_calls_than_it_says(tmp_path: Path) -> None:
    bounds: dict[str, Setting] = {
        "connections_max": 5,
        "calls_max": 2,
        "connection_calls_max": 8,
        "idle_ms": 2_000,
    }
    with Disposable(1, tmp_path, {"connections": bounds}) as cluster:
        cluster.start()
        cluster.wait_until_serving()
        (node,) = cluster.nodes.values()
        host, _, port = node.address.rpartition(":")
        async with channel(cluster) as own, asyncio.timeout(30):
            calls = await silent([own], 2)
            await asyncio.sleep(0.2)
            (third,) = await silent([own], 1)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await third.read()
            assert refusal(caught.value).reason == "OVERLOADED"
            sockets = [socket.create_connection((host, int(port)), 5) for _ in range(8)]
            await asyncio.sleep(0.5)
            for one in sockets:
                one.setblocking(False)
            assert sum(map(closed, sockets)) == 4
            for one in sockets:
                one.close()
            for call in calls:
                call.cancel()
            await own.wait_for_state_change(grpc.ChannelConnectivity.READY)  # the node ends what is idle
