"""Peers over gRPC: each node opens one stream to each peer and says everything on it, in order.

        send ─► bounded queue ─► [frame] ─► stream ─► PeerServicer ─► receive

What does not fit the queue is dropped; Raft sends it again. A broken stream is opened anew, with a capped
back-off; its queue is dropped with it, so that nothing old is said late.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import MappingProxyType

import grpc
import grpc.aio

from tarry.proto.tarry_peer_pb2 import (
    ExchangeResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PeerMessage,
)
from tarry.replication.settings import ReplicationSettings
from tarry.replication.snapshot import SnapshotFailed
from tarry.replication.transport_options import channel_options, server_options
from tarry.replication.transport_protocol import ANYBODY, PeerGate, ServeSnapshot, Transport
from tarry.replication.transport_server import SERVICE, PeerServicer
from tarry.replication.wire import Identity, Inbound, Outbound

__all__ = ["GrpcTransport", "PeerServicer", "ServeSnapshot", "Transport", "channel_options", "server_options"]

_EXCHANGE = f"/{SERVICE}/Exchange"
_FETCH = f"/{SERVICE}/FetchSnapshot"
_BACK_OFF_MIN_S = 0.02
_BACK_OFF_MAX_S = 1.0
_FRAME_OVERHEAD_BYTES = 1 << 16


class GrpcTransport:
    def __init__(
        self,
        *,
        settings: ReplicationSettings,
        rng: random.Random,
        credentials: grpc.ChannelCredentials | None = None,
        token: str = "",
        dial: Mapping[str, str] = MappingProxyType({}),
        gate: PeerGate = ANYBODY,
    ) -> None:
        """`credentials` None: plain text. `token`: what peers show each other; empty: none is asked for.
        `dial`: a member's address -> where this node reaches it, for those that it reaches elsewhere.
        `gate`: who may speak for which node."""
        self._settings = settings
        self._rng = rng
        self._credentials = credentials
        self._dial = dial
        self._identity = Identity("", "", 0, 0)
        self._link: Callable[[str, bool], None] = lambda peer, up: None
        self._fail: Callable[[BaseException], None] = lambda error: None
        self._epochs = itertools.count(1)
        self._ways: dict[str, _Way] = {}
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self.servicer = PeerServicer(token, gate)
        self.dropped = 0

    def start(
        self,
        identity: Identity,
        receive: Callable[[str, list[PeerMessage]], None],
        link: Callable[[str, bool], None],
        serve_snapshot: ServeSnapshot,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._identity = identity
        self._link = link
        self._fail = fail
        self.servicer.start(Inbound(identity.cluster, identity.node), receive, serve_snapshot)

    def restart(self, identity: Identity) -> None:
        self._identity = identity
        for way in self._ways.values():
            way.outbound = Outbound(identity, way.outbound.receiver, self._epochs)
            way.outbound.begin()

    async def fetch_snapshot(self, peer: str) -> AsyncIterator[FetchSnapshotResponse]:
        way = self._ways.get(peer)
        if way is None:
            raise SnapshotFailed(f"{peer} is not a peer")
        request = FetchSnapshotRequest(cluster=self._identity.cluster, node=self._identity.node)
        fetch = way.channel.unary_stream(
            _FETCH, FetchSnapshotRequest.SerializeToString, FetchSnapshotResponse.FromString
        )
        try:
            async for part in fetch(request, metadata=self._metadata):
                yield part
        except grpc.aio.AioRpcError as error:
            raise SnapshotFailed(f"{peer}: {error.code().name} {error.details()}") from error

    def set_peers(self, addresses: Mapping[str, str]) -> None:
        for peer, way in list(self._ways.items()):
            if addresses.get(peer) != way.address:
                del self._ways[peer]
                way.cancel()
        for peer, address in addresses.items():
            if peer not in self._ways:
                outbound = Outbound(self._identity, peer, self._epochs)
                channel = self._channel(address)
                way = _Way(
                    peer, address, outbound, channel, self._link, self._settings, self._rng, self._metadata
                )
                way.task.add_done_callback(self._watch)
                self._ways[peer] = way

    def send(self, peer: str, messages: Sequence[bytes]) -> bool:
        way = self._ways.get(peer)
        if way is None or not way.put(messages):
            self.dropped += len(messages)
            return False
        return True

    async def stop(self) -> None:
        self.servicer.stop()
        ways, self._ways = list(self._ways.values()), {}
        for way in ways:
            way.cancel()
        await asyncio.gather(*(way.ended() for way in ways))

    def _watch(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    def _channel(self, address: str) -> grpc.aio.Channel:
        options = channel_options(self._settings)
        address = self._dial.get(address, address)
        if self._credentials is None:
            return grpc.aio.insecure_channel(address, options=options)
        return grpc.aio.secure_channel(address, self._credentials, options=options)


class _Way:
    """The stream to one peer and what waits for it."""

    def __init__(
        self,
        peer: str,
        address: str,
        outbound: Outbound,
        channel: grpc.aio.Channel,
        link: Callable[[str, bool], None],
        settings: ReplicationSettings,
        rng: random.Random,
        metadata: tuple[tuple[str, str], ...],
    ) -> None:
        self.address = address
        self._peer = peer
        self.outbound = outbound
        self.channel = channel
        self._link = link
        self._settings = settings
        self._rng = rng
        self._metadata = metadata
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._up = False
        self._wake = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._run(), name=f"peer-{peer}")

    def put(self, messages: Sequence[bytes]) -> bool:
        size_bytes = sum(map(len, messages))
        fits = self._waiting_bytes + size_bytes <= self._settings.peer_queue_bytes_max
        if not self._up or not fits or len(self._waiting) >= self._settings.peer_queue_messages_max:
            return False
        self._waiting.extend(messages)
        self._waiting_bytes += size_bytes
        self._wake.set()
        return True

    def cancel(self) -> None:
        self.task.cancel()

    async def ended(self) -> None:
        await asyncio.wait([self.task])

    async def _run(self) -> None:
        back_off_s = _BACK_OFF_MIN_S
        try:
            while True:
                refused = False
                try:
                    refused = await self._stream()
                except grpc.aio.AioRpcError:
                    pass  # the peer is away or refuses: told by the link
                except asyncio.InvalidStateError:
                    pass  # the call ended while a frame was being written
                longest_s = _BACK_OFF_MAX_S if refused else min(_BACK_OFF_MAX_S, back_off_s * 2)
                back_off_s = _BACK_OFF_MIN_S if self._up and not refused else longest_s
                self._set_up(False)
                await asyncio.sleep(back_off_s * (0.5 + self._rng.random()))
        finally:
            self._set_up(False)
            await self.channel.close(None)

    async def _stream(self) -> bool:
        """Until it ends; whether the peer refused us."""
        exchange = self.channel.stream_unary(_EXCHANGE, None, ExchangeResponse.FromString)  # sealed already
        call = exchange(None, wait_for_ready=False, metadata=self._metadata)
        closed = asyncio.Event()

        def close(_: object) -> None:
            closed.set()
            self._wake.set()

        call.add_done_callback(close)
        try:
            await call.wait_for_connection()
            self.outbound.begin()
            self._set_up(True)
            while not closed.is_set():
                self._wake.clear()
                while self._waiting:
                    await call.write(self.outbound.seal(self._take()))
                await self._wake.wait()
            return await call.code() is grpc.StatusCode.PERMISSION_DENIED
        finally:
            call.cancel()

    def _take(self) -> list[bytes]:
        """As much as one frame holds; at least one message."""
        messages: list[bytes] = []
        room_bytes = self._settings.frame_bytes_max - _FRAME_OVERHEAD_BYTES
        while self._waiting and (not messages or len(self._waiting[0]) <= room_bytes):
            message = self._waiting.popleft()
            room_bytes -= len(message)
            self._waiting_bytes -= len(message)
            messages.append(message)
        return messages

    def _set_up(self, up: bool) -> None:
        if not up:
            self._waiting.clear()
            self._waiting_bytes = 0
        if up != self._up:
            self._up = up
            self._link(self._peer, up)
