"""The receiving side of the streams between peers: a port of its own, entered with a ticket.

    Meet over gRPC (certificate, token) ─► ticket ─► stream ─► Inbound ─► receive

A ticket is good once, for a short time, and for one node's name: who a stream is from was settled where
the ticket was asked for. With TLS a handshake costs the event loop up to some ms, so it is begun only with
who shows before it, in clear, that it has a ticket; the ticket itself comes encrypted.

Any byte of a stream that is let in is a sign of life, for a frame may take as long as a slow link needs for
it. A stream that is silent for a while is closed; its sender opens another.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final

from tarry.proto.tarry_peer_pb2 import PeerMessage
from tarry.replication.clock import to_next
from tarry.replication.raft.membership import Origin
from tarry.replication.settings import ReplicationSettings
from tarry.replication.transport.acceptor import Acceptor, Entrant, OnStrangers, ignored
from tarry.replication.transport.envelope import FrameRefused, Inbound
from tarry.replication.transport.framing import (
    FRAME_OVERHEAD_BYTES,
    TICKET_BYTES,
    StreamBroken,
    Unframer,
    pass_of,
)
from tarry.replication.transport.interface import PeerTls

TICKETS_MAX: Final = 256
TICKET_S: Final = 10.0
STREAMS_OF_A_PEER_MAX: Final = 4
READ_BYTES_MAX: Final = 256 << 10
"""Read from a stream at once."""
SLOWEST_BYTES_PER_S: Final = 16 << 10

Receive = Callable[[str, list[PeerMessage], Origin], None]


class Tickets:
    """Tickets of nodes that have shown who they are; each lets one stream in."""

    def __init__(self) -> None:
        self._given: dict[bytes, tuple[str, float]] = {}
        self._passes: dict[bytes, bytes] = {}  # of tickets that have not been announced

    def give(self, node: str, now: float) -> bytes:
        """Return a new ticket; where there are too many, the oldest is void."""
        while len(self._given) >= TICKETS_MAX:
            self._forget(next(iter(self._given)))
        ticket = os.urandom(TICKET_BYTES)
        self._given[ticket] = node, now + TICKET_S
        self._passes[pass_of(ticket)] = ticket
        return ticket

    def announce(self, shown: bytes, now: float) -> bool:
        """Return whether it is the pass of a ticket that is good, the first time that it is shown."""
        ticket = self._passes.pop(shown, b"")
        _, until = self._given.get(ticket, ("", 0.0))
        return now < until

    def take(self, ticket: bytes, now: float) -> str:
        """Return the node that the ticket was given to; empty: to nobody, or too long ago."""
        node, until = self._given.get(ticket, ("", 0.0))
        self._forget(ticket)
        return node if now < until else ""

    def _forget(self, ticket: bytes) -> None:
        self._given.pop(ticket, None)
        self._passes.pop(pass_of(ticket), None)


class PeerListener:
    """Listens for streams. `start` says who hears what they carry; else none is let in."""

    def __init__(
        self, settings: ReplicationSettings, tls: PeerTls | None, on_strangers: OnStrangers = ignored
    ) -> None:
        self.tickets = Tickets()
        self.settings = settings
        deadline_s = settings.peer_ticket_ms / 1_000
        self.acceptor = Acceptor(lambda: _Stream(self), tls, self.tickets.announce, deadline_s, on_strangers)
        self.inbound: Inbound | None = None
        self.receive: Receive = lambda peer, messages, origin: None
        self.streams: dict[_Stream, str] = {}
        """Those that have come in: whose each is; the oldest first."""
        self._looking: asyncio.TimerHandle | None = None
        self.buffer = memoryview(bytearray(READ_BYTES_MAX))
        """Of all streams, for what is read is taken over at once: a new one for each read costs 35 µs."""

    def start(self, inbound: Inbound, receive: Receive) -> None:
        self.inbound, self.receive = inbound, receive

    def stop(self) -> None:
        self.inbound = None
        self.acceptor.stop()
        for stream in list(self.streams):
            stream.end()

    def admit(self, stream: _Stream, peer: str) -> None:
        """Add a stream; of too many of one peer the oldest is closed, which may have ended unnoticed."""
        own = [other for other, whose in self.streams.items() if whose == peer]
        for other in own[: max(0, len(own) + 1 - STREAMS_OF_A_PEER_MAX)]:
            del self.streams[other]
            other.end()
        self.streams[stream] = peer
        if self._looking is None:
            self._look_later()

    def _look_later(self) -> None:
        """Set the timer of all streams, at whole multiples: an idle node does not wake up for it alone."""
        loop = asyncio.get_running_loop()
        self._looking = loop.call_later(to_next(self.settings.peer_ping_ms / 1_000, loop.time()), self._look)

    def _look(self) -> None:
        self._looking = None
        now = asyncio.get_running_loop().time()
        for stream in list(self.streams):
            if stream.is_over(now):
                stream.end()
        if self.streams:
            self._look_later()


class _Stream(Entrant):
    """One peer's stream to us, once it has shown its ticket."""

    def __init__(self, listener: PeerListener) -> None:
        super().__init__()
        self._listener = listener
        self._unframer = Unframer(listener.settings.frame_bytes_max + FRAME_OVERHEAD_BYTES)
        self._silence_s = listener.settings.peer_silence_ms / 1_000
        self._peer = ""
        self._loop = asyncio.get_running_loop()
        self._heard = self._whole = self._loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._listener.inbound is None:
            self.end()

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.streams.pop(self, None)
        self.entered.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._listener.buffer

    def buffer_updated(self, nbytes: int) -> None:
        listener = self._listener
        self._heard = self._loop.time()
        try:
            self._unframer.put(listener.buffer[:nbytes])
            self._peer = self._peer or self._enter()
            for frame in self._unframer.frames() if self._peer else ():
                self._whole = self._heard
                if listener.inbound is None:
                    self.end()
                    break
                peer, messages, origin = listener.inbound.open(frame, {self._peer})
                if messages:
                    listener.receive(peer, messages, origin)
        except (StreamBroken, FrameRefused):
            listener.acceptor.count("no frames of a peer" if self._peer else "no good ticket")
            self.end()

    def _enter(self) -> str:
        """Return whose ticket it is; empty: not all of it is there yet."""
        ticket = self._unframer.ticket()
        peer = self._listener.tickets.take(ticket, self._heard) if ticket is not None else ""
        if ticket is not None and (not peer or self.entered.done()):  # done: it is being ended
            raise StreamBroken("a ticket that is not good, or too late")
        if peer:
            self._whole = self._heard
            self.entered.set_result(None)
            self._listener.admit(self, peer)
        return peer

    def is_over(self, now: float) -> bool:
        """Return whether nothing has come for too long, or less of a frame than the slowest link carries."""
        allowed_s = self._silence_s + self._unframer.begun_bytes / SLOWEST_BYTES_PER_S
        return now - self._heard >= self._silence_s or (
            self._unframer.begun_bytes > 0 and now - self._whole >= allowed_s
        )

    def end(self) -> None:
        self._transport.abort()
