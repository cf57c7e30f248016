"""gRPC service for peers: tickets for streams, and the state as a stream of files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from tarry.proto import bearer_token
from tarry.proto.tarry_peer_pb2 import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    MeetRequest,
    MeetResponse,
    RecallRequest,
    RecallResponse,
)
from tarry.replication.settings import SNAPSHOT_STALL_MS
from tarry.replication.snapshot.transfer import KEPT_FILES_MAX, SnapshotFailed, StateTooNew
from tarry.replication.spoken_peers import SpokenPeers
from tarry.replication.transport.framing import STREAMS
from tarry.replication.transport.interface import PeerGate, ServeSnapshot
from tarry.replication.transport.stream_listener import PeerListener

SERVICE = "tarry.v1.PeerService"
FORMER = (
    "the cluster was restored from a backup, or recovered by a survivor: this node's data and the caller's "
    "are of two incarnations, which never mix. To bring a node into the new cluster, stop it, and start it "
    "once with --rejoin: its data is set aside, and it takes everything from the members"
)
"""Why a node of another incarnation of the cluster is refused."""
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
R = TypeVar("R", MeetRequest, FetchSnapshotRequest, RecallRequest)
_Request: TypeAlias = "MeetRequest | FetchSnapshotRequest | RecallRequest"


class PeerServicer:
    """The node adds `handler()` to its one server, which bounds the bytes of a request."""

    def __init__(
        self,
        listener: PeerListener,
        tokens: bearer_token.PeerTokens,
        gate: PeerGate,
        met: Callable[[str], None],
    ) -> None:
        """Take `met`, told who has asked where to open a stream, and was answered."""
        self._listener = listener
        self._tokens = tokens
        self._gate = gate
        self._met = met
        self._spoken_peers: SpokenPeers | None = None
        self._serve_snapshot: ServeSnapshot | None = None

    def introduce(self, spoken_peers: SpokenPeers) -> None:
        self._spoken_peers = spoken_peers

    def start(self, serve_snapshot: ServeSnapshot) -> None:
        self._serve_snapshot = serve_snapshot

    def handler(self) -> grpc.GenericRpcHandler[Any, Any]:
        meet = grpc.unary_unary_rpc_method_handler(
            self._meet, response_serializer=MeetResponse.SerializeToString
        )
        fetch = grpc.unary_stream_rpc_method_handler(
            self._fetch_snapshot, response_serializer=FetchSnapshotResponse.SerializeToString
        )
        recall = grpc.unary_unary_rpc_method_handler(
            self._recall, response_serializer=RecallResponse.SerializeToString
        )
        methods = {"Meet": meet, "Recall": recall, "FetchSnapshot": fetch}
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _check(self, context: Context, request: _Request) -> SpokenPeers:
        """Return who has spoken to this node."""
        if not self._tokens.take(context.invocation_metadata()):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "show the cluster's peer token")
        spoken_peers = self._spoken_peers
        if spoken_peers is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the replica is not running")
        recalls = isinstance(request, RecallRequest)  # who has no journal has no incarnation either
        former = spoken_peers.is_former(request.cluster)
        if request.cluster != spoken_peers.cluster and not former:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"not of {request.cluster[:100]}")
        await self._gate.check_name(context, request.node)
        if former and not recalls and not self._adopts(request, spoken_peers):
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, FORMER)
        await self._gate.check(context, request.node)
        return spoken_peers

    def _adopts(self, request: _Request, spoken_peers: SpokenPeers) -> bool:
        """Return whether this node, a newcomer, has become one of the caller's incarnation of the cluster."""
        inbound = self._listener.inbound
        if not isinstance(request, MeetRequest) or inbound is None or not self._gate.admits(request.node):
            return False
        if not spoken_peers.adopts(request.cluster):
            return False
        inbound.cluster = spoken_peers.cluster
        return True

    async def _recall(self, raw: bytes, context: Context) -> RecallResponse:
        return (await self._check(context, _parsed(RecallRequest, raw))).recall()

    async def _meet(self, raw: bytes, context: Context) -> MeetResponse:
        request = _parsed(MeetRequest, raw)
        await self._check(context, request)
        if self._listener.inbound is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the replica is not running")
        self._met(request.node)
        give, now = self._listener.tickets.give, asyncio.get_running_loop().time()
        tickets = [give(request.node, now) for _ in range(STREAMS)]
        return MeetResponse(port=self._listener.acceptor.port, tickets=tickets)

    async def _fetch_snapshot(self, raw: bytes, context: Context) -> AsyncIterator[FetchSnapshotResponse]:
        request = _parsed(FetchSnapshotRequest, raw)
        await self._check(context, request)
        if len(request.kept) > KEPT_FILES_MAX:
            text = (
                f"{len(request.kept)} files are kept: name {KEPT_FILES_MAX} at most, the others are sent anew"
            )
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        if self._serve_snapshot is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the replica is not running")
        try:
            async for part in self._serve_snapshot(request.kept, max(1, request.level)):
                with _taken_in_time():
                    yield part
        except StateTooNew as failed:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(failed))
        except SnapshotFailed as failed:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(failed))


@contextmanager
def _taken_in_time() -> Iterator[None]:
    """Cancel the call where what is yielded is not taken: it keeps files, which others no longer need."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    timer = loop.call_later(SNAPSHOT_STALL_MS / 1000, task.cancel)
    try:
        yield
    finally:
        timer.cancel()


def _parsed(kind: type[R], raw: bytes) -> R:
    """Return the request; of bytes that are none an empty one, which names no cluster and is refused."""
    try:
        return kind.FromString(raw)
    except DecodeError:
        return kind()
