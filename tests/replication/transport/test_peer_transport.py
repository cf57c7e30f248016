"""Streams between peers over real connections on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import grpc.aio
import pytest

from tarry.proto.bearer_token import PeerTokens
from tarry.proto.tarry_peer_pb2 import (
    FetchSnapshotResponse,
    Heartbeat,
    MeetRequest,
    MeetResponse,
    PeerMessage,
    SnapshotFile,
    Vote,
)
from tarry.replication.raft.membership import Origin
from tarry.replication.settings import ReplicationSettings
from tarry.replication.snapshot.transfer import KEPT_FILES_MAX, SnapshotFailed
from tarry.replication.spoken_peers import SpokenPeers
from tarry.replication.transport.envelope import Identity, Outbound
from tarry.replication.transport.framing import framed, opening
from tarry.replication.transport.grpc_options import server_options
from tarry.replication.transport.peer_transport import PeerTransport

PATIENCE_S = 20
TICKET = b"<ticket>"
VOTE = PeerMessage(vote=Vote(term=3)).SerializeToString()


def a_vote(cluster: str, node: str) -> bytes:
    """Return a vote for n2, as it goes on a stream."""
    return framed(Outbound(Identity(cluster, node, 1, 1), "n2", itertools.count(1)).seal([VOTE]))


class Named(SpokenPeers):
    """Of a node that nobody has spoken to."""

    cluster = "tarry"
    node = ""

    def __init__(self, node: str) -> None:
        self.node = node


class End:
    """One node's transport with what it received."""

    def __init__(self, name: str, settings: ReplicationSettings | None = None, token: str = "") -> None:
        self.name = name
        self.settings = settings or ReplicationSettings()
        self.transport = PeerTransport(
            settings=self.settings, rng=random.Random(name), tokens=PeerTokens(token)
        )
        self.received: list[PeerMessage] = []
        self.links: list[tuple[str, bool]] = []
        self.changed = asyncio.Event()
        self.address = "127.0.0.1:0"

    async def listen(self, boot: int = 1) -> None:
        self.server = grpc.aio.server(options=server_options(self.settings))
        self.server.add_generic_rpc_handlers((self.transport.servicer.handler(),))
        self.address = f"127.0.0.1:{self.server.add_insecure_port(self.address)}"
        await self.transport.listen("127.0.0.1")
        await self.server.start()
        self.transport.introduce(Named(self.name))
        self.transport.start(
            Identity("tarry", self.name, 1, boot), self._receive, self._link, self._no_snapshot, self._fail
        )

    async def stop(self) -> None:
        await self.transport.stop()
        await self.server.stop(None)

    async def until(self, condition: Callable[[], bool]) -> None:
        async def hold() -> None:
            while not condition():
                self.changed.clear()
                await self.changed.wait()

        await asyncio.wait_for(hold(), PATIENCE_S)

    def _receive(self, peer: str, messages: list[PeerMessage], _: Origin) -> None:
        self.received += messages
        self.changed.set()

    def _link(self, peer: str, up: bool) -> None:
        self.links.append((peer, up))
        self.changed.set()

    async def _no_snapshot(self, kept: object, level: int) -> AsyncIterator[FetchSnapshotResponse]:
        if self.name:
            raise SnapshotFailed("none here")
        yield FetchSnapshotResponse()

    def _fail(self, error: BaseException) -> None:
        raise error


class Stuck:
    """A peer that lets streams in and reads nothing."""

    async def listen(self) -> None:
        self._streams: list[asyncio.BaseTransport] = []
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: _NotReading(self._streams), "127.0.0.1", 0)
        port = self._listener.sockets[0].getsockname()[1]
        meet = grpc.unary_unary_rpc_method_handler(
            lambda request, context: MeetResponse(port=port, tickets=[bytes(16)] * 2),
            request_deserializer=MeetRequest.FromString,
            response_serializer=MeetResponse.SerializeToString,
        )
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("tarry.v1.PeerService", {"Meet": meet}),)
        )
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()

    async def stop(self) -> None:
        self._listener.close()
        for stream in self._streams:
            stream.close()
        await self._server.stop(None)


class _NotReading(asyncio.Protocol):
    def __init__(self, streams: list[asyncio.BaseTransport]) -> None:
        self._streams = streams

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()
        self._streams.append(transport)


async def meet(end: End, node: str, cluster: str = "tarry") -> tuple[int, bytes]:
    """Return port and ticket for a stream of that node."""
    async with grpc.aio.insecure_channel(end.address) as channel:
        ask = channel.unary_unary(
            "/tarry.v1.PeerService/Meet", MeetRequest.SerializeToString, MeetResponse.FromString
        )
        response = await ask(MeetRequest(cluster=cluster, node=node))
    return response.port, response.tickets[0]


async def between(
    play: Callable[[End, End], Awaitable[None]], settings: ReplicationSettings | None = None
) -> None:
    one, other = End("n1", settings), End("n2", settings)
    await one.listen()
    await other.listen()
    try:
        one.transport.set_peers({"n2": other.address})
        await one.until(lambda: ("n2", True) in one.links)
        await play(one, other)
    finally:
        await one.stop()
        await other.stop()


async def test_messages_arrive_in_order_and_together() -> None:
    async def play(one: End, other: End) -> None:
        for term in range(500):
            assert one.transport.send("n2", [PeerMessage(vote=Vote(term=term)).SerializeToString()])
        await other.until(lambda: len(other.received) == 500)
        assert [message.vote.term for message in other.received] == list(range(500))

    await between(play)


async def test_messages_of_the_largest_size_fit() -> None:
    async def play(one: End, other: End) -> None:
        large = PeerMessage(heartbeat=Heartbeat(state=bytes(3 << 20))).SerializeToString()
        assert one.transport.send("n2", [large, large, large])
        await other.until(lambda: len(other.received) == 3)

    await between(play)


async def test_what_does_not_fit_the_queue_is_dropped() -> None:
    async def play(one: End, other: End) -> None:
        assert one.transport.send("n2", [VOTE])
        assert not one.transport.send(
            "n2", [PeerMessage(heartbeat=Heartbeat(state=bytes(1000))).SerializeToString()]
        )
        assert one.transport.send("n2", [VOTE])
        await other.until(lambda: len(other.received) == 2)

    await between(play, ReplicationSettings(peer_queue_bytes_max=1000))


async def test_a_peer_that_stops_reading_fills_the_queue_and_no_more() -> None:
    one, stuck = End("n1", ReplicationSettings(peer_queue_bytes_max=4 << 20)), Stuck()
    await one.listen()
    await stuck.listen()
    try:
        one.transport.set_peers({"n2": stuck.address})
        await one.until(lambda: ("n2", True) in one.links)
        large = PeerMessage(heartbeat=Heartbeat(state=bytes(1 << 20))).SerializeToString()
        sent = sum(one.transport.send("n2", [large]) for _ in range(60))
        assert 3 <= sent < 12  # the queue and what the system holds
    finally:
        await one.stop()
        await stuck.stop()


async def test_a_peer_that_comes_back_is_found_again() -> None:
    async def play(one: End, other: End) -> None:
        await other.stop()
        await one.until(lambda: one.links[-1] == ("n2", False))
        assert not one.transport.send("n2", [VOTE])
        other.transport = PeerTransport(settings=other.settings, rng=random.Random(1))
        await other.listen(boot=2)
        await one.until(lambda: one.links[-1] == ("n2", True))
        assert one.transport.send("n2", [VOTE])
        await other.until(lambda: len(other.received) == 1)

    await between(play)


@pytest.mark.parametrize("ended", [0, 1])
async def test_with_one_stream_the_other_ends(ended: int) -> None:
    async def play(one: End, other: End) -> None:
        assert one.transport.send("n2", [VOTE], bulk=True)
        assert one.transport.send("n2", [VOTE])
        await other.until(lambda: len(other.received) == 2)  # both streams have come in
        list(other.transport._listener.streams)[ended].end()
        async with asyncio.timeout(5):
            await one.until(lambda: one.links[1:2] == [("n2", False)])
        await one.until(lambda: one.links[-1] == ("n2", True))

    await between(play)


async def test_what_waited_for_a_stream_is_not_said_on_the_next() -> None:
    async def play(one: End, other: End) -> None:
        assert one.transport.send("n2", [VOTE])  # so that its stream has come in
        await other.until(lambda: len(other.received) == 1)
        streams = list(other.transport._listener.streams)
        for stream in streams:
            stream._transport.pause_reading()
        large = PeerMessage(heartbeat=Heartbeat(state=bytes(1 << 20))).SerializeToString()
        while one.transport.send("n2", [large]):
            pass
        for stream in streams:
            stream.end()
        await one.until(lambda: len(one.links) == 3)  # it was down, and is up again
        assert one.transport.send("n2", [VOTE])
        await other.until(lambda: len(other.received) > 1)
        assert [message.WhichOneof("body") for message in other.received] == ["vote", "vote"]

    await between(play, ReplicationSettings(peer_queue_bytes_max=4 << 20))


async def test_a_peer_that_listens_elsewhere_is_left_where_it_was() -> None:
    async def play(one: End, other: End) -> None:
        one.transport.set_peers({"n2": other.address})
        elsewhere = End("n2")
        await elsewhere.listen()
        one.transport.set_peers({"n2": elsewhere.address})
        for _ in range(10):
            await asyncio.sleep(0)
        assert one.links == [("n2", True), ("n2", False)]
        await one.until(lambda: one.links[-1] == ("n2", True))
        assert one.transport.send("n2", [VOTE])
        await elsewhere.until(lambda: len(elsewhere.received) == 1)
        await elsewhere.stop()

    await between(play)


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        opening(bytes(16)),  # a ticket that nobody was given
        TICKET + b"some bytes that are no frame",
        TICKET + framed(b"\xff\xff\xff"),
        TICKET + a_vote("tarry", "n3"),  # not whose ticket it is
        TICKET + a_vote("other", "n1"),
        TICKET + framed(bytes(9 << 20))[:100],  # larger than any frame may be
    ],
)
async def test_garbage_ends_the_stream_and_no_other(said: bytes) -> None:
    async def play(one: End, other: End) -> None:
        port, ticket = await meet(other, "n1")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said.replace(TICKET, opening(ticket)))
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""  # closed, and nothing said
        writer.close()
        assert other.received == []
        assert one.transport.send("n2", [VOTE])
        await other.until(lambda: len(other.received) == 1)

    await between(play)


async def test_a_ticket_is_good_for_one_stream() -> None:
    async def play(one: End, other: End) -> None:
        port, ticket = await meet(other, "n3")
        vote = opening(ticket) + framed(
            Outbound(Identity("tarry", "n3", 1, 1), "n2", itertools.count(1)).seal([VOTE])
        )
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(vote)
        await other.until(lambda: len(other.received) == 1)
        reader, again = await asyncio.open_connection("127.0.0.1", port)
        again.write(vote)
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
        assert len(other.received) == 1
        writer.close()
        again.close()

    await between(play)


async def test_a_node_of_another_cluster_is_given_no_ticket() -> None:
    async def play(_: End, other: End) -> None:
        with pytest.raises(grpc.aio.AioRpcError, match="not of elsewhere"):
            await meet(other, "n1", cluster="elsewhere")

    await between(play)


async def test_a_silent_stream_is_closed_and_a_stream_with_nothing_to_say_is_not() -> None:
    async def play(one: End, other: End) -> None:
        port, ticket = await meet(other, "n3")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(opening(ticket))
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
        writer.close()
        assert one.links == [("n2", True)]

    await between(play, ReplicationSettings(peer_ping_ms=20, peer_silence_ms=2_000))


async def test_a_snapshot_that_cannot_be_served_is_refused() -> None:
    async def play(one: End, other: End) -> None:
        with pytest.raises(SnapshotFailed, match="none here"):
            async for _ in one.transport.fetch_snapshot("n2"):
                pass
        with pytest.raises(SnapshotFailed):
            async for _ in one.transport.fetch_snapshot("n9"):
                pass

    await between(play)


async def test_a_snapshot_is_asked_for_with_so_many_files_at_most() -> None:
    async def play(one: End, other: End) -> None:
        kept = [SnapshotFile(size_bytes=1)] * (KEPT_FILES_MAX + 1)
        for count, said in ((KEPT_FILES_MAX, "none here"), (KEPT_FILES_MAX + 1, f"{KEPT_FILES_MAX} at most")):
            with pytest.raises(SnapshotFailed, match=said):
                async for _ in one.transport.fetch_snapshot("n2", kept[:count]):
                    pass

    await between(play)


async def test_a_peer_without_the_clusters_token_is_not_listened_to() -> None:
    one, other = End("n1", token="guessed"), End("n2", token="secret")
    await one.listen()
    await other.listen()
    try:
        one.transport.set_peers({"n2": other.address})
        with pytest.raises(SnapshotFailed, match="UNAUTHENTICATED"):
            async for _ in one.transport.fetch_snapshot("n2"):
                pass
        assert one.links == other.received == []
    finally:
        await one.stop()
        await other.stop()
