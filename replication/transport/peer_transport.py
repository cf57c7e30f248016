"""Transport between peers: two streams of frames each way; the rest over gRPC.

A frame on a plain connection costs a fraction of one on a gRPC stream, and consensus is frames. Who may open
a stream is settled over gRPC, with the same certificates and tokens as everything else (`stream_listener`).
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import MappingProxyType

import grpc
import grpc.aio

from tarry.proto import bearer_token
from tarry.proto.tarry_peer_pb2 import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    MeetRequest,
    MeetResponse,
    PeerMessage,
    RecallRequest,
    RecallResponse,
    SnapshotFile,
)
from tarry.replication.raft.membership import Origin
from tarry.replication.settings import ReplicationSettings
from tarry.replication.snapshot.transfer import SnapshotFailed
from tarry.replication.spoken_peers import SpokenPeers
from tarry.replication.transport.acceptor import OnStrangers, ignored
from tarry.replication.transport.blocked_port import BlockedPort
from tarry.replication.transport.envelope import Identity, Inbound, Outbound
from tarry.replication.transport.framing import STREAMS
from tarry.replication.transport.grpc_options import channel_options
from tarry.replication.transport.interface import ANYBODY, PeerGate, PeerTls, ServeSnapshot
from tarry.replication.transport.peer_service import SERVICE, PeerServicer
from tarry.replication.transport.retired_channels import RetiredChannels
from tarry.replication.transport.stream_listener import PeerListener
from tarry.replication.transport.stream_sender import DialOptions, PeerAway, PeerRefuses, PeerStreams

_MEET = f"/{SERVICE}/Meet"
_RECALL = f"/{SERVICE}/Recall"
_RECALL_S = 1.0
_FETCH = f"/{SERVICE}/FetchSnapshot"
_REFUSALS = (
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.FAILED_PRECONDITION,
)


class PeerTransport:
    def __init__(
        self,
        *,
        settings: ReplicationSettings,
        rng: random.Random,
        credentials: grpc.ChannelCredentials | None = None,
        tls: PeerTls | None = None,
        tokens: bearer_token.PeerTokens | None = None,
        dial: Mapping[str, str] = MappingProxyType({}),
        gate: PeerGate = ANYBODY,
        on_strangers: OnStrangers = ignored,
    ) -> None:
        """Take `credentials` (gRPC) and `tls` (streams); None: plain text.

        `tokens`: what peers show each other; None: none is asked for.
        `dial`: a member's address -> where this node reaches it, for those that it reaches elsewhere.
        `gate`: who may speak for which node.
        `on_strangers`: called now and then with counts of connections to the port that came to nothing.
        """
        self._dial_options = DialOptions(settings, rng, dial, tls)
        self._credentials = credentials
        self._identity = Identity("", "", 0, 0)
        self._link: Callable[[str, bool], None] = lambda peer, up: None
        self._fail: Callable[[BaseException], None] = lambda error: None
        self._spoken_peers: SpokenPeers | None = None
        self._epochs = itertools.count(1)
        self._streams: dict[str, PeerStreams] = {}
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self.former: dict[str, str] = {}
        """Answers of peers that are of another incarnation of the cluster."""
        self._retired = RetiredChannels()
        self._tokens = tokens or bearer_token.PeerTokens()
        self._listener = PeerListener(settings, tls, on_strangers)
        self.servicer = PeerServicer(self._listener, self._tokens, gate, self._met)

    async def listen(self, host: str, port: int = 0) -> None:
        """Listen for peers' streams, before `start`; port 0: on any that is free. Raises OSError."""
        await self._listener.acceptor.listen(host, port)

    def introduce(self, spoken_peers: SpokenPeers) -> None:
        self._spoken_peers = spoken_peers
        self.servicer.introduce(spoken_peers)

    async def recall(self, peer: str, address: str) -> RecallResponse | None:
        spoken_peers = self._spoken_peers
        assert spoken_peers is not None
        request = RecallRequest(cluster=spoken_peers.cluster, node=spoken_peers.node)
        async with self._channel(address) as channel:
            ask = channel.unary_unary(_RECALL, RecallRequest.SerializeToString, RecallResponse.FromString)
            try:
                answer: RecallResponse = await ask(request, metadata=self._tokens.metadata, timeout=_RECALL_S)
            except grpc.aio.AioRpcError:
                return None
        return answer

    def start(
        self,
        identity: Identity,
        receive: Callable[[str, list[PeerMessage], Origin], None],
        link: Callable[[str, bool], None],
        serve_snapshot: ServeSnapshot,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._identity = identity
        self._link = link
        self._fail = fail
        inbound = Inbound(identity.cluster, identity.node, self._dial_options.settings.message_bytes_max)
        self._listener.start(inbound, receive)
        self.servicer.start(serve_snapshot)

    def restart(self, identity: Identity) -> None:
        self._identity = identity
        if self._listener.inbound is not None:
            self._listener.inbound.cluster = identity.cluster
        for streams in self._streams.values():
            streams.outbound = Outbound(identity, streams.outbound.receiver, self._epochs)
            streams.outbound.begin()

    async def fetch_snapshot(
        self, peer: str, kept: Sequence[SnapshotFile] = (), level: int = 1
    ) -> AsyncIterator[FetchSnapshotResponse]:
        if peer not in self._channels:
            raise SnapshotFailed(f"{peer} is not a peer")
        identity = self._identity
        request = FetchSnapshotRequest(cluster=identity.cluster, node=identity.node, kept=kept, level=level)
        fetch = self._channels[peer].unary_stream(
            _FETCH, FetchSnapshotRequest.SerializeToString, FetchSnapshotResponse.FromString
        )
        try:
            async for part in fetch(request, metadata=self._tokens.metadata):
                yield part
        except grpc.aio.AioRpcError as error:
            raise SnapshotFailed(f"{peer}: {error.code().name} {error.details()}") from error

    @property
    def port(self) -> int:
        """Port on which peers open their streams; 0: it does not listen."""
        return self._listener.acceptor.port

    def set_peers(self, addresses: Mapping[str, str]) -> None:
        for peer, streams in list(self._streams.items()):
            if addresses.get(peer) != streams.address:
                self._leave(peer)
        for peer, address in addresses.items():
            if peer not in self._streams:
                self._channels[peer] = self._channel(address)
                outbound = Outbound(self._identity, peer, self._epochs)
                meet = functools.partial(self._meet, peer)
                streams = self._streams[peer] = PeerStreams(
                    peer, address, outbound, meet, self._link, self._dial_options
                )
                streams.task.add_done_callback(self._watch)

    def blocked(self) -> dict[str, BlockedPort]:
        found = {peer: streams.tries.blocked for peer, streams in self._streams.items()}
        return {peer: port for peer, port in found.items() if port is not None}

    def _leave(self, peer: str) -> asyncio.Task[None]:
        channel, streams = self._channels.pop(peer), self._streams.pop(peer)
        streams.task.cancel()

        async def leave() -> None:
            await asyncio.wait([streams.task])
            await channel.close(None)

        task = asyncio.get_running_loop().create_task(leave())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        return task

    async def _meet(self, peer: str) -> MeetResponse:
        channel = self._channels[peer]
        meet = channel.unary_unary(_MEET, MeetRequest.SerializeToString, MeetResponse.FromString)
        request = MeetRequest(cluster=self._identity.cluster, node=self._identity.node)
        try:
            response: MeetResponse = await meet(request, metadata=self._tokens.metadata)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                self.former[peer] = error.details() or ""
            raise (PeerRefuses if error.code() in _REFUSALS else PeerAway)(error.details()) from error
        self.former.pop(peer, None)
        if len(response.tickets) != STREAMS:
            raise PeerAway(f"{len(response.tickets)} tickets for {STREAMS} streams")
        return response

    def _met(self, peer: str) -> None:
        if peer in self._streams:
            self._streams[peer].retry()

    def send(self, peer: str, messages: Sequence[bytes], *, bulk: bool = False) -> bool:
        streams = self._streams.get(peer)
        return streams is not None and streams.put(messages, bulk=bulk)

    async def stop(self) -> None:
        self._listener.stop()
        for peer in list(self._streams):
            self._leave(peer)
        await asyncio.gather(*self._leaving)
        await self._retired.close()

    def _watch(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    def renew(self, credentials: grpc.ChannelCredentials) -> None:
        """Make calls with other credentials from now on; those under way go on."""
        self._credentials = credentials
        self._retired.add(self._channels.values())
        self._channels = {peer: self._channel(streams.address) for peer, streams in self._streams.items()}

    def _channel(self, address: str) -> grpc.aio.Channel:
        options = channel_options(self._dial_options.settings)
        address = self._dial_options.dial.get(address, address)
        if self._credentials is None:
            return grpc.aio.insecure_channel(address, options=options)
        return grpc.aio.secure_channel(address, self._credentials, options=options)
