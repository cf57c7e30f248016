"""The receiving side of the streams between peers: what they say is let through, or their call ended."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

import grpc
import grpc.aio

from tarry.proto.tarry_peer_pb2 import (
    ExchangeResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PeerMessage,
)
from tarry.replication.snapshot import SnapshotFailed
from tarry.replication.transport_protocol import PeerGate, ServeSnapshot
from tarry.replication.wire import FrameRefused, Inbound, SenderNotCertified

SERVICE = "tarry.v1.PeerService"
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class PeerServicer:
    """The receiving side; the node adds `handler()` to its one server."""

    def __init__(self, token: str, gate: PeerGate) -> None:
        self._token = token
        self._gate = gate
        self._inbound: Inbound | None = None
        self._receive: Callable[[str, list[PeerMessage]], None] = lambda peer, messages: None
        self._serve_snapshot: ServeSnapshot | None = None

    def start(
        self,
        inbound: Inbound,
        receive: Callable[[str, list[PeerMessage]], None],
        serve_snapshot: ServeSnapshot,
    ) -> None:
        self._inbound, self._receive, self._serve_snapshot = inbound, receive, serve_snapshot

    def stop(self) -> None:
        self._inbound = None

    def handler(self) -> grpc.GenericRpcHandler[Any, Any]:
        exchange = grpc.stream_unary_rpc_method_handler(
            self._exchange, response_serializer=ExchangeResponse.SerializeToString
        )
        fetch = grpc.unary_stream_rpc_method_handler(
            self._fetch_snapshot,
            request_deserializer=FetchSnapshotRequest.FromString,
            response_serializer=FetchSnapshotResponse.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(SERVICE, {"Exchange": exchange, "FetchSnapshot": fetch})

    async def _check(self, context: Context) -> None:
        shown = dict(context.invocation_metadata() or ()).get("authorization", "")
        if self._token and not hmac.compare_digest(f"Bearer {self._token}".encode(), str(shown).encode()):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "show the cluster's peer token")

    async def _exchange(self, frames: AsyncIterator[bytes], context: Context) -> ExchangeResponse:
        await self._check(context)
        certified = self._gate.names(context)
        async for frame in frames:
            if self._inbound is None:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the replica is not running")
            try:
                peer, messages = self._inbound.open(frame, certified)
            except SenderNotCertified as claimed:
                await self._gate.refuse(context, str(claimed))
            except FrameRefused as refused:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(refused))
            self._receive(peer, messages)
        return ExchangeResponse()

    async def _fetch_snapshot(
        self, request: FetchSnapshotRequest, context: Context
    ) -> AsyncIterator[FetchSnapshotResponse]:
        await self._check(context)
        if self._inbound is None or self._serve_snapshot is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the replica is not running")
        if request.cluster != self._inbound.cluster:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"not of {request.cluster}")
        certified = self._gate.names(context)
        if certified is not None and request.node not in certified:
            await self._gate.refuse(context, request.node)
        try:
            async for part in self._serve_snapshot():
                yield part
        except SnapshotFailed as failed:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(failed))
