"""Streams between peers over real gRPC on loopback."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import grpc.aio
import pytest

from tarry.proto.tarry_peer_pb2 import ExchangeResponse, FetchSnapshotResponse, Heartbeat, PeerMessage, Vote
from tarry.replication.settings import ReplicationSettings
from tarry.replication.snapshot import SnapshotFailed
from tarry.replication.transport import GrpcTransport, server_options
from tarry.replication.wire import Identity

VOTE = PeerMessage(vote=Vote(term=3)).SerializeToString()


class End:
    """One node's transport with what it received."""

    def __init__(self, name: str, settings: ReplicationSettings | None = None, token: str = "") -> None:
        self.name = name
        self.settings = settings or ReplicationSettings()
        self.transport = GrpcTransport(settings=self.settings, rng=random.Random(name), token=token)
        self.received: list[PeerMessage] = []
        self.links: list[tuple[str, bool]] = []
        self.changed = asyncio.Event()
        self.address = "127.0.0.1:0"

    async def listen(self, boot: int = 1) -> None:
        self.server = grpc.aio.server(options=server_options(self.settings))
        self.server.add_generic_rpc_handlers((self.transport.servicer.handler(),))
        self.address = f"127.0.0.1:{self.server.add_insecure_port(self.address)}"
        await self.server.start()
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

        await asyncio.wait_for(hold(), 5)

    def _receive(self, peer: str, messages: list[PeerMessage]) -> None:
        self.received += messages
        self.changed.set()

    def _link(self, peer: str, up: bool) -> None:
        self.links.append((peer, up))
        self.changed.set()

    async def _no_snapshot(self) -> AsyncIterator[FetchSnapshotResponse]:
        if self.name:
            raise SnapshotFailed("none here")
        yield FetchSnapshotResponse()

    def _fail(self, error: BaseException) -> None:
        raise error


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


async def test_what_does_not_fit_the_queue_is_dropped_and_counted() -> None:
    async def play(one: End, other: End) -> None:
        half = PeerMessage(heartbeat=Heartbeat(state=bytes(600))).SerializeToString()
        assert one.transport.send("n2", [half])
        assert not one.transport.send("n2", [half])
        assert one.transport.dropped == 1

    await between(play, ReplicationSettings(peer_queue_bytes_max=1000))


async def test_a_peer_that_comes_back_is_found_again() -> None:
    async def play(one: End, other: End) -> None:
        await other.stop()
        await one.until(lambda: one.links[-1] == ("n2", False))
        assert not one.transport.send("n2", [VOTE])
        other.transport = GrpcTransport(settings=other.settings, rng=random.Random(1))
        await other.listen(boot=2)
        await one.until(lambda: one.links[-1] == ("n2", True))
        assert one.transport.send("n2", [VOTE])
        await other.until(lambda: len(other.received) == 1)

    await between(play)


async def test_garbage_ends_the_stream_and_is_counted() -> None:
    async def play(one: End, other: End) -> None:
        async with grpc.aio.insecure_channel(other.address) as channel:
            exchange = channel.stream_unary(
                "/tarry.v1.PeerService/Exchange", None, ExchangeResponse.FromString
            )
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await exchange(iter([b"\xff\xff\xff"]))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert one.transport.send("n2", [VOTE])
        await other.until(lambda: len(other.received) == 1)

    await between(play)


async def test_a_snapshot_that_cannot_be_served_is_refused() -> None:
    async def play(one: End, other: End) -> None:
        with pytest.raises(SnapshotFailed, match="none here"):
            async for _ in one.transport.fetch_snapshot("n2"):
                pass
        with pytest.raises(SnapshotFailed):
            async for _ in one.transport.fetch_snapshot("n9"):
                pass

    await between(play)


async def test_a_peer_without_the_clusters_token_is_not_listened_to() -> None:
    one, other = End("n1", token="guessed"), End("n2", token="secret")
    await one.listen()
    await other.listen()
    try:
        one.transport.set_peers({"n2": other.address})
        await one.until(lambda: ("n2", False) in one.links)
        one.transport.send("n2", [PeerMessage().SerializeToString()])
        with pytest.raises(SnapshotFailed, match="UNAUTHENTICATED"):
            async for _ in one.transport.fetch_snapshot("n2"):
                pass
        assert other.received == []
    finally:
        await one.stop()
        await other.stop()
