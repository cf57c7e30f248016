"""The receiving side of the streams between peers: a port of its own, entered with a ticket.

    Meet over gRPC (certificate, token) ─► ticket ─► stream ─► Inbound ─► receive

A ticket is good once, for a short time, and for one node's name: who a stream is from was settled where the
ticket was asked for. A stream that says nothing whole for a while is closed; its sender opens another.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from typing import Final

from tarry.proto.tarry_peer_pb2 import PeerMessage
from tarry.replication.peer_frames import FRAME_OVERHEAD_BYTES, TICKET_BYTES, StreamBroken, Unframing
from tarry.replication.settings import ReplicationSettings
from tarry.replication.wire import FrameRefused, Inbound

TICKETS_MAX: Final = 256
TICKET_S: Final = 10.0
STREAMS_MAX: Final = 256

Receive = Callable[[str, list[PeerMessage]], None]


class Tickets:
    """Given to nodes that have shown who they are; each lets one stream in."""

    def __init__(self) -> None:
        self._given: dict[bytes, tuple[str, float]] = {}

    def give(self, node: str, now: float) -> bytes:
        """The oldest goes where there are too many: who was too slow asks again."""
        while len(self._given) >= TICKETS_MAX:
            del self._given[next(iter(self._given))]
        ticket = os.urandom(TICKET_BYTES)
        self._given[ticket] = node, now + TICKET_S
        return ticket

    def take(self, ticket: bytes, now: float) -> str:
        """Return the node that the ticket was given to; empty: to nobody, or too long ago."""
        node, until = self._given.pop(ticket, ("", 0.0))
        return node if now < until else ""


class PeerListener:
    """Listens for streams. `start` says who hears what they carry; else none is let in."""

    def __init__(self, settings: ReplicationSettings, tls: ssl.SSLContext | None) -> None:
        self.tickets = Tickets()
        self.refused = 0
        """Streams closed for what was said on them."""
        self.settings = settings
        self._tls = tls
        self._server: asyncio.Server | None = None
        self.inbound: Inbound | None = None
        self.receive: Receive = lambda peer, messages: None
        self.streams: set[_Stream] = set()

    @property
    def port(self) -> int:
        """0: it does not listen."""
        sockets = self._server.sockets if self._server is not None else ()
        return int(sockets[0].getsockname()[1]) if sockets else 0

    async def listen(self, host: str, port: int) -> None:
        """Port 0: any that is free. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Stream(self),
            host,
            port,
            ssl=self._tls,
            ssl_handshake_timeout=self.settings.peer_silence_ms / 1_000 if self._tls is not None else None,
        )

    def start(self, inbound: Inbound, receive: Receive) -> None:
        self.inbound, self.receive = inbound, receive

    def stop(self) -> None:
        self.inbound = None
        if self._server is not None:
            self._server.close()
        for stream in list(self.streams):
            stream.end()


class _Stream(asyncio.Protocol):
    """One peer's stream to us."""

    def __init__(self, listener: PeerListener) -> None:
        self._listener = listener
        self._unframing = Unframing(listener.settings.frame_bytes_max + FRAME_OVERHEAD_BYTES)
        self._silence_s = listener.settings.peer_silence_ms / 1_000
        self._peer = ""
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._listener.streams.add(self)
        self._timer = self._loop.call_later(self._silence_s, self._look)
        if len(self._listener.streams) > STREAMS_MAX or self._listener.inbound is None:
            self.end()

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.streams.discard(self)
        self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        listener, now = self._listener, self._loop.time()
        if self._peer:
            self._heard = now
        try:
            self._unframing.put(data)
            self._peer = self._peer or self._enter(now)
            for frame in self._unframing.frames() if self._peer else ():
                if listener.inbound is None:
                    self.end()
                    break
                peer, messages = listener.inbound.open(frame, {self._peer})
                if messages:
                    listener.receive(peer, messages)
        except (StreamBroken, FrameRefused):
            listener.refused += 1
            self.end()

    def _enter(self, now: float) -> str:
        """Return whose ticket it is; empty: not all of it is there yet."""
        ticket = self._unframing.ticket()
        peer = self._listener.tickets.take(ticket, now) if ticket is not None else ""
        if ticket is not None and not peer:
            raise StreamBroken("a ticket that is not good")
        return peer

    def _look(self) -> None:
        silent_s = self._loop.time() - self._heard
        if silent_s >= self._silence_s:
            self.end()
        else:
            self._timer = self._loop.call_later(self._silence_s - silent_s, self._look)

    def end(self) -> None:
        self._transport.abort()
