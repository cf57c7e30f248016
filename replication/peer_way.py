"""The way to one peer: asked for over gRPC, then a stream of frames on a connection of its own.

        put ─► stream                      while it takes more
           └─► bounded queue ─► stream     while it does not

What does not fit the queue is dropped; Raft sends it again. A broken stream is opened anew, with a capped
back-off; its queue is dropped with it, so that nothing old is said late.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tarry.replication.clock import to_next
from tarry.replication.peer_frames import framed, opening
from tarry.replication.settings import ReplicationSettings
from tarry.replication.wire import Outbound

_BACK_OFF_MIN_S: Final = 0.02
_BACK_OFF_MAX_S: Final = 1.0
_CONNECT_MAX_S: Final = 2.0
_FRAME_OVERHEAD_BYTES: Final = 1 << 16
_WRITE_AHEAD_BYTES: Final = 1 << 20  # given to the system and not yet sent; beyond it, messages queue


class PeerAway(Exception):
    """The peer is not there, or not now."""


class PeerRefuses(PeerAway):
    """The peer does not take this node for what it says it is: asking again soon is no use."""


@dataclass(frozen=True, slots=True)
class Door:
    """Where a stream is opened, and what lets it in."""

    port: int
    ticket: bytes


@dataclass(frozen=True, slots=True)
class Dialling:
    """How this node reaches others."""

    settings: ReplicationSettings
    rng: random.Random
    dial: Mapping[str, str]
    """A member's address -> where this node reaches it, for those that it reaches elsewhere."""
    tls: ssl.SSLContext | None


class Way:
    """The stream to one peer and what waits for it."""

    def __init__(
        self,
        peer: str,
        address: str,
        outbound: Outbound,
        meet: Callable[[], Awaitable[Door]],
        link: Callable[[str, bool], None],
        dialling: Dialling,
    ) -> None:
        """`meet` raises PeerAway. `link(peer, up)` hears whether the stream stands."""
        self.address = address
        self.outbound = outbound
        self._peer = peer
        self._meet = meet
        self._link = link
        self._dialling = dialling
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._stream: _Stream | None = None
        self.task = asyncio.get_running_loop().create_task(self._run(), name=f"peer-{peer}")

    def put(self, messages: Sequence[bytes]) -> bool:
        settings, stream = self._dialling.settings, self._stream
        size_bytes = self._waiting_bytes + sum(map(len, messages))
        full = len(self._waiting) >= settings.peer_queue_messages_max
        if stream is None or full or size_bytes > settings.peer_queue_bytes_max:
            return False
        self._waiting.extend(messages)
        self._waiting_bytes = size_bytes
        self._flush(stream)
        return True

    def _flush(self, stream: _Stream) -> None:
        while self._waiting and stream.takes:
            stream.write(self.outbound.seal(self._take()))

    def _take(self) -> list[bytes]:
        """As much as one frame holds; at least one message."""
        messages: list[bytes] = []
        room_bytes = self._dialling.settings.frame_bytes_max - _FRAME_OVERHEAD_BYTES
        while self._waiting and (not messages or len(self._waiting[0]) <= room_bytes):
            message = self._waiting.popleft()
            room_bytes -= len(message)
            self._waiting_bytes -= len(message)
            messages.append(message)
        return messages

    async def _run(self) -> None:
        back_off_s = _BACK_OFF_MIN_S
        while True:
            try:
                await self._speak()
                back_off_s = _BACK_OFF_MIN_S
            except PeerRefuses:
                back_off_s = _BACK_OFF_MAX_S
            except (PeerAway, OSError, TimeoutError):
                back_off_s = min(_BACK_OFF_MAX_S, back_off_s * 2)
            await asyncio.sleep(back_off_s * (0.5 + self._dialling.rng.random()))

    async def _speak(self) -> None:
        """Until the stream ends. Raises PeerAway, OSError, TimeoutError where it does not come to be."""
        async with asyncio.timeout(_CONNECT_MAX_S):
            door = await self._meet()
            stream = await self._connect(door)
        loop, ping_s = asyncio.get_running_loop(), self._dialling.settings.peer_ping_ms / 1_000
        try:
            self.outbound.begin()
            self._stream = stream
            self._link(self._peer, True)
            while not stream.ended.done():
                if not stream.spoke():
                    stream.write(self.outbound.seal([]))  # so that the peer knows the stream is whole
                await asyncio.wait((stream.ended,), timeout=to_next(ping_s, loop.time()))
        finally:
            self._stream = None
            self._waiting.clear()
            self._waiting_bytes = 0
            stream.end()
            self._link(self._peer, False)

    async def _connect(self, door: Door) -> _Stream:
        dialling = self._dialling
        home, _, _ = self.address.rpartition(":")
        address = f"{home}:{door.port}"
        host, _, port = dialling.dial.get(address, address).rpartition(":")
        _, stream = await asyncio.get_running_loop().create_connection(
            lambda: _Stream(door.ticket, self._flush, dialling.settings.peer_silence_ms),
            host.strip("[]"),
            int(port),
            ssl=dialling.tls,
            server_hostname=home.strip("[]") if dialling.tls else None,
        )
        return stream


class _Stream(asyncio.Protocol):
    """A connection to a peer, written to only."""

    def __init__(self, ticket: bytes, resume: Callable[[_Stream], None], silence_ms: int) -> None:
        self._ticket = ticket
        self._silence_ms = silence_ms
        self._resume = resume
        self._spoke = True
        self.takes = True
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=_WRITE_AHEAD_BYTES)
        peer_socket: socket.socket = transport.get_extra_info("socket")
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux: a peer that vanished without a word
            peer_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self._silence_ms)
        transport.write(opening(self._ticket))

    def write(self, sealed: bytes) -> None:
        self._spoke = True
        self._transport.write(framed(sealed))

    def spoke(self) -> bool:
        """Whether anything was written since this was asked last."""
        spoke, self._spoke = self._spoke, False
        return spoke

    def pause_writing(self) -> None:
        self.takes = False

    def resume_writing(self) -> None:
        self.takes = True
        self._resume(self)

    def eof_received(self) -> None:
        """The peer wants no more: the transport closes."""

    def connection_lost(self, error: Exception | None) -> None:
        self.takes = False
        if not self.ended.done():
            self.ended.set_result(None)

    def end(self) -> None:
        self._transport.abort()
