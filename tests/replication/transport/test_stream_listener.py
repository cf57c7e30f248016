"""Strangers on the peers' port, over real connections on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import shutil
import socket
import ssl
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.proto.tarry_peer_pb2 import PeerMessage
from tarry.replication.settings import ReplicationSettings
from tarry.replication.transport import acceptor
from tarry.replication.transport.acceptor import STRANGERS_MAX
from tarry.replication.transport.envelope import Identity, Inbound, Outbound
from tarry.replication.transport.framing import PASS_BYTES, framed, opening, pass_of
from tarry.replication.transport.interface import PeerTls
from tarry.replication.transport.stream_listener import (
    SLOWEST_BYTES_PER_S,
    STREAMS_OF_A_PEER_MAX,
    TICKET_S,
    TICKETS_MAX,
    PeerListener,
    Tickets,
)
from tests.cluster.authority import Authority
from tests.replication.transport.test_peer_transport import VOTE

PATIENCE_S = 20
PATIENT = ReplicationSettings(peer_ticket_ms=60_000)
"""Strangers go because there are too many, not because of the time."""


class Port:
    """A node's port for peers, and what peers have said on it."""

    def __init__(self, settings: ReplicationSettings, tls: PeerTls | None = None) -> None:
        self.told: list[Counter[str]] = []
        self._tls = tls
        self.listener = PeerListener(settings, tls, lambda ended: self.told.append(Counter(ended)))
        self.epoch = 0
        self._heard: asyncio.Queue[tuple[str, list[PeerMessage]]] = asyncio.Queue()
        self._strangers: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def heard(self) -> str:
        """Return who was heard next."""
        return (await asyncio.wait_for(self._heard.get(), PATIENCE_S))[0]

    async def connected(
        self, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """With TLS, who connects shows the pass of a ticket first."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.acceptor.port)
        self._strangers.append((reader, writer))
        if tls is not None:
            writer.write(pass_of(self.ticket("n1")))
            await writer.start_tls(tls)
        return reader, writer

    def ticket(self, node: str) -> bytes:
        return self.listener.tickets.give(node, asyncio.get_running_loop().time())

    def said_by(self, node: str) -> bytes:
        """Return what opens a stream of that node, and a vote on it."""
        ticket = self.ticket(node)
        self.epoch += 1
        outbound = Outbound(Identity("tarry", node, 1, 1), "n2", iter([self.epoch]))
        outbound.begin()
        return opening(ticket) + framed(outbound.seal([VOTE]))

    async def peer(self, node: str) -> None:
        """One comes and is heard."""
        _, writer = await self.connected(self._tls.client if self._tls else None)
        writer.write(self.said_by(node))
        assert await self.heard() == node

    async def __aenter__(self) -> Port:
        await self.listener.acceptor.listen("127.0.0.1", 0)
        self.listener.start(
            Inbound("tarry", "n2"), lambda peer, messages, _: self._heard.put_nowait((peer, messages))
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.listener.stop()
        for _, writer in self._strangers:
            writer.close()


@pytest.fixture(params=["plain", "TLS"])
def tls(request: pytest.FixtureRequest, tmp_path: Path) -> PeerTls | None:
    if request.param == "plain":
        return None
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed: no certificate to test with")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=n2 -keyout {key}"
    subprocess.run([openssl, *made.split(), "-out", certificate], check=True, capture_output=True)
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(certificate, key)
    client.load_verify_locations(certificate)
    client.check_hostname = False
    return PeerTls(server, client)


async def closed(reader: asyncio.StreamReader) -> None:
    """Wait until the other side has closed, and said nothing."""
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""


async def coming_back(port: int) -> None:
    """A stranger who says nothing and connects again as soon as it is closed."""
    while True:
        with contextlib.suppress(ConnectionError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await reader.read()
            writer.close()


async def test_hundreds_who_say_nothing_keep_no_peer_out(tls: PeerTls | None) -> None:
    async with Port(PATIENT, tls) as port:
        for number in range(600):
            await port.connected()
            if number % 60 == 0:
                await port.peer("n1")
        assert len(port.listener.streams) == STREAMS_OF_A_PEER_MAX
        assert port.listener.acceptor.ended["too many without a ticket"] >= 600 - STRANGERS_MAX


@pytest.mark.parametrize("tls", ["TLS"], indirect=True)
async def test_who_is_in_its_handshake_with_a_ticket_is_not_ended_for_hundreds_without(tls: PeerTls) -> None:
    async with Port(PATIENT, tls) as port:
        _, writer = await port.connected()
        writer.write(pass_of(port.ticket("n1")))
        for _ in range(600):
            await port.connected()
        await port.peer("n3")
        await asyncio.wait_for(writer.start_tls(tls.client), PATIENCE_S)
        writer.write(port.said_by("n1"))
        assert await port.heard() == "n1"


async def test_with_renewed_certificates_new_peers_come_in_and_those_that_are_there_stay(
    tmp_path: Path,
) -> None:
    contexts = []
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        authority = Authority(tmp_path / name)
        authority.sign("n2", "/CN=n2")
        files = [tmp_path / name / file for file in ("n2.pem", "n2.key", "authority.pem")]
        server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        server.load_cert_chain(*files[:2])
        client.load_verify_locations(files[2])
        client.check_hostname = False
        contexts.append(PeerTls(server, client))
    shown, renewed = contexts
    async with Port(PATIENT, shown) as port:
        _, writer = await port.connected(shown.client)
        writer.write(port.said_by("n1"))
        assert await port.heard() == "n1"
        shown.renew(renewed)
        _, new = await port.connected(renewed.client)  # which trusts the new authority alone
        new.write(port.said_by("n3"))
        assert await port.heard() == "n3"
        outbound = Outbound(Identity("tarry", "n1", 1, 1), "n2", iter([port.epoch + 1]))
        outbound.begin()
        writer.write(framed(outbound.seal([VOTE])))
        assert await port.heard() == "n1"


@pytest.mark.parametrize("tls", ["TLS"], indirect=True)
@pytest.mark.parametrize("shown", ["nothing", "a pass that nobody was given", "a pass shown before"])
async def test_a_handshake_is_begun_with_nobody_who_shows_no_ticket(tls: PeerTls, shown: str) -> None:
    async with Port(PATIENT, tls) as port:
        reader, writer = await port.connected()
        used = pass_of(port.ticket("n1"))
        assert port.listener.tickets.announce(used, asyncio.get_running_loop().time())
        writer.write({"nothing": b"", "a pass shown before": used}.get(shown, bytes(PASS_BYTES)))
        writer.write(client_hello(tls.client))
        await closed(reader)
        assert port.listener.acceptor.ended == {"no good ticket": 1}


def client_hello(tls: ssl.SSLContext) -> bytes:
    """Return the first bytes of a handshake."""
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    return out.read()


def test_a_pass_is_shown_once_and_as_long_as_its_ticket_is_good() -> None:
    tickets = Tickets()
    shown, late, gone = (tickets.give("n1", now=5.0) for _ in range(3))
    assert tickets.announce(pass_of(shown), now=5.0)
    assert not tickets.announce(pass_of(shown), now=5.0)
    assert tickets.take(shown, now=5.0) == "n1"
    assert not tickets.announce(pass_of(late), now=5.0 + TICKET_S)
    for _ in range(TICKETS_MAX):
        tickets.give("n3", now=5.0)
    assert not tickets.announce(pass_of(gone), now=5.0)
    assert not tickets.announce(b"", now=5.0)


def test_a_ticket_lets_in_once_and_for_a_while() -> None:
    tickets = Tickets()
    used, late = (tickets.give("n1", now=5.0) for _ in range(2))
    assert tickets.take(used, now=5.0) == "n1"
    assert tickets.take(used, now=5.0) == ""
    assert tickets.take(late, now=5.0 + TICKET_S) == ""


async def test_who_comes_back_at_once_and_without_end_keeps_no_peer_out() -> None:
    async with Port(PATIENT) as port:
        strangers = [asyncio.create_task(coming_back(port.listener.acceptor.port)) for _ in range(100)]
        for _ in range(10):
            await port.peer("n1")
        for stranger in strangers:
            stranger.cancel()
        await asyncio.gather(*strangers, return_exceptions=True)


async def test_who_shows_no_ticket_in_time_is_closed_and_a_peer_is_not(tls: PeerTls | None) -> None:
    async with Port(ReplicationSettings(peer_ticket_ms=500), tls) as port:
        await port.peer("n1")
        silent, _ = await port.connected()
        slow, writer = await port.connected(tls.client if tls else None)
        writer.write(opening(bytes(16))[:9])
        await closed(silent)
        await closed(slow)
        assert port.listener.acceptor.ended == {"no ticket in time": 2}
        assert len(port.listener.streams) == 1


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n\r\n", opening(bytes(16)), b"tary\xff\xff\xff\xff", bytes(1 << 20)]
)
async def test_a_stranger_who_says_something_else_is_closed_at_once(said: bytes) -> None:
    async with Port(PATIENT) as port:
        reader, writer = await port.connected()
        writer.write(said)
        await closed(reader)
        assert port.listener.acceptor.ended == {"no good ticket": 1}


async def test_a_peer_that_says_no_frame_is_closed_before_the_rest_of_it_comes() -> None:
    async with Port(PATIENT) as port:
        reader, writer = await port.connected()
        writer.write(port.said_by("n1") + framed(bytes(9 << 20))[:100])
        assert await port.heard() == "n1"
        await closed(reader)
        assert port.listener.acceptor.ended == {"no frames of a peer": 1}
        assert port.listener.streams == {}


async def test_a_frame_may_take_as_long_as_the_slowest_link_needs_for_it_and_no_byte_may_stay_away() -> None:
    async with Port(PATIENT) as port:
        await port.peer("n1")
        stream, size_bytes = next(iter(port.listener.streams)), 200_000
        silence_s = port.listener.settings.peer_silence_ms / 1_000

        def read(data: bytes) -> None:
            stream.get_buffer(-1)[: len(data)] = data
            stream.buffer_updated(len(data))

        read(framed(bytes(size_bytes))[:100])
        begun = stream._whole
        for seconds in range(1, 100):  # a byte each second, and no frame for it
            stream._heard = 0.0
            read(b"\0")
            assert stream._heard >= begun
            stream._heard = begun + seconds
            if stream.is_over(begun + seconds):
                break
        allowed_s = silence_s + size_bytes / SLOWEST_BYTES_PER_S
        assert allowed_s <= seconds < allowed_s + 1
        stream._whole = begun + seconds
        assert not stream.is_over(stream._heard + silence_s - 0.1)
        assert stream.is_over(stream._heard + silence_s + 0.1)


async def test_a_peer_that_opens_one_stream_after_another_loses_its_own_oldest() -> None:
    async with Port(PATIENT) as port:
        await port.peer("n1")
        for _ in range(STREAMS_OF_A_PEER_MAX + 3):
            await port.peer("n3")
        assert Counter(port.listener.streams.values()) == {"n1": 1, "n3": STREAMS_OF_A_PEER_MAX}


async def test_a_ticket_that_comes_while_its_connection_is_being_ended_fails_nothing() -> None:
    failed: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    async with Port(PATIENT) as port:
        reader, writer = await port.connected()
        await port.peer("n3")  # the other one has been met by then
        writer.write(port.said_by("n1"))
        await asyncio.sleep(0)  # it is read later in this turn
        port.listener.acceptor._end_oldest("too many without a ticket")
        await closed(reader)
        await port.peer("n1")
    assert failed == []


@pytest.mark.parametrize("number", [errno.EPROTO, errno.EPERM, errno.EHOSTUNREACH])
async def test_a_connection_that_fails_before_it_is_accepted_ends_nothing(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    real, errors = socket.socket.accept, [OSError(number, "")]

    def accept(listening: socket.socket) -> tuple[socket.socket, object]:
        if errors:
            raise errors.pop()
        return real(listening)

    monkeypatch.setattr(socket.socket, "accept", accept)
    async with Port(PATIENT) as port:
        await port.peer("n1")
        assert port.listener.acceptor.ended == {"failed before it was accepted": 1}
    assert (failed, errors) == ([], [])


async def test_what_becomes_of_strangers_is_told_now_and_then_not_each_time() -> None:
    async with Port(PATIENT) as port:
        for _ in range(50):
            reader, writer = await port.connected()
            writer.write(b"something else")
            await closed(reader)
        assert port.told == [{"no good ticket": 1}]


@pytest.fixture
def few_descriptors() -> Iterator[list[int]]:
    """Of which the test takes what is left, and gives back what it took."""
    limits, taken = resource.getrlimit(resource.RLIMIT_NOFILE), []
    highest = max(int(fd.name) for fd in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 50, limits[1]))
    yield taken
    for fd in taken:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_without_a_descriptor_for_it_a_peer_waits_and_the_loop_does_not_spin(
    few_descriptors: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Port(PATIENT) as port:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(acceptor, "STARVED_PAUSE_S", 0.02)
        tried = 0
        paused = asyncio.Event()
        pause = port.listener.acceptor._pause

        def count(listening: socket.socket, pause_s: float) -> None:
            nonlocal tried
            tried += 1
            if tried == 3:
                paused.set()
            pause(listening, pause_s)

        monkeypatch.setattr(port.listener.acceptor, "_pause", count)
        said = port.said_by("n1")
        with socket.socket() as peer:
            peer.setblocking(False)
            with contextlib.suppress(OSError):
                while True:
                    few_descriptors.append(os.open("/dev/null", os.O_RDONLY))
            await loop.sock_connect(peer, ("127.0.0.1", port.listener.acceptor.port))
            await loop.sock_sendall(peer, said)
            begun = loop.time()
            await asyncio.wait_for(paused.wait(), PATIENCE_S)
            assert loop.time() - begun >= 2 * 0.02
            os.close(few_descriptors.pop())
            assert await port.heard() == "n1"
