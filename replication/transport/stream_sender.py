"""Sending side of the streams to one peer: a ticket over gRPC, then two connections.

    put ─┬─► urgent queue ─► stream      heartbeats, votes, answers, notices
         └─► bulk queue ───► stream      appends: those above never wait behind them

A queue waits while its stream takes no more; what does not fit it is dropped, and Raft sends it again. A
broken stream ends the other, too. Both are opened anew, with a capped back-off; what waited is dropped with
them, so that nothing old is said late.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tarry.proto.tarry_peer_pb2 import MeetResponse
from tarry.replication.clock import to_next
from tarry.replication.settings import ReplicationSettings
from tarry.replication.transport.blocked_port import PortTries
from tarry.replication.transport.envelope import Outbound
from tarry.replication.transport.framing import framed, opening, pass_of
from tarry.replication.transport.interface import PeerTls
from tarry.replication.transport.send_queue import PeerQueue

_BACK_OFF_MIN_S: Final = 0.02
_BACK_OFF_MAX_S: Final = 1.0
_CONNECT_MAX_S: Final = 2.0
_WRITE_AHEAD_BYTES: Final = 64 << 10  # of a stream, not taken by the system; beyond it, messages queue
_UNSENT_BYTES_MAX: Final = 128 << 10  # taken by the system, and not yet under way


class PeerAway(Exception):
    """The peer is not there, or not now."""


class PeerRefuses(PeerAway):
    """The peer does not take this node for what it says it is: asking again soon is no use."""


@dataclass(frozen=True, slots=True)
class DialOptions:
    """Options by which this node reaches others."""

    settings: ReplicationSettings
    rng: random.Random
    dial: Mapping[str, str]
    """A member's address -> where this node reaches it, for those that it reaches elsewhere."""
    tls: PeerTls | None


class PeerStreams:
    """The streams to one peer and what waits for them."""

    def __init__(
        self,
        peer: str,
        address: str,
        outbound: Outbound,
        meet: Callable[[], Awaitable[MeetResponse]],
        link: Callable[[str, bool], None],
        dial_options: DialOptions,
    ) -> None:
        """Take `meet`, which may raise PeerAway, and `link(peer, up)`, told when the streams open and end."""
        self.address = address
        self.outbound = outbound
        self._peer = peer
        self._meet = meet
        self._link = link
        self._dial_options = dial_options
        self._queues = {bulk: PeerQueue(dial_options.settings, bulk=bulk) for bulk in (False, True)}
        self._streams: dict[bool, _Stream] = {}
        self.tries = PortTries()
        self._again = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._run(), name=f"peer-{peer}")

    def put(self, messages: Sequence[bytes], *, bulk: bool) -> bool:
        stream = self._streams.get(bulk)
        if stream is None or not self._queues[bulk].put(messages):
            return False
        self._flush(stream)
        return True

    def _flush(self, stream: _Stream) -> None:
        queue = self._queues[stream.bulk]
        while queue and stream.takes:
            stream.write(queue.frame(self.outbound))

    def retry(self) -> None:
        """Try again at once, if it waits: the peer is there, and takes this node for one."""
        self._again.set()

    async def _run(self) -> None:
        back_off_s, loop = _BACK_OFF_MIN_S, asyncio.get_running_loop()
        while True:
            why = ""
            try:
                await self._speak()
                back_off_s = _BACK_OFF_MIN_S
            except PeerRefuses:
                back_off_s = _BACK_OFF_MAX_S
            except (PeerAway, OSError, TimeoutError) as error:
                why = str(error)  # empty: too late
                back_off_s = min(_BACK_OFF_MAX_S, back_off_s * 2)
            self.tries.ended(why, loop.time())
            self._again.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(back_off_s * (0.5 + self._dial_options.rng.random())):
                    await self._again.wait()

    async def _speak(self) -> None:
        """Open the streams and hold them until one ends. Raises PeerAway, OSError, TimeoutError."""
        streams: dict[bool, _Stream] = {}
        try:
            async with asyncio.timeout(_CONNECT_MAX_S):
                met = await self._meet()
                for bulk, ticket in zip((False, True), met.tickets, strict=True):
                    streams[bulk] = await self._connect(met.port, ticket, bulk=bulk)
            self.outbound.begin()
            self._streams = streams
            self.tries.opened(asyncio.get_running_loop().time())
            self._link(self._peer, True)
            await self._until_one_ends(list(streams.values()))
        finally:
            linked, self._streams = bool(self._streams), {}
            for stream in streams.values():
                stream.end()
            for queue in self._queues.values():
                queue.clear()
            if linked:
                self._link(self._peer, False)

    async def _until_one_ends(self, streams: Sequence[_Stream]) -> None:
        loop, ping_s = asyncio.get_running_loop(), self._dial_options.settings.peer_ping_ms / 1_000
        ends = [stream.ended for stream in streams]
        while not any(end.done() for end in ends):
            for stream in streams:
                if not stream.spoke():  # so that the peer knows the stream is whole
                    stream.write(self.outbound.seal([], bulk=stream.bulk))
            timeout_s = to_next(ping_s, loop.time())
            await asyncio.wait(ends, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)

    async def _connect(self, at_port: int, ticket: bytes, *, bulk: bool) -> _Stream:
        dial_options = self._dial_options
        home, _, _ = self.address.rpartition(":")
        address = f"{home}:{at_port}"
        host, _, port = dial_options.dial.get(address, address).rpartition(":")
        at = host.strip("[]"), int(port)
        loop = asyncio.get_running_loop()
        self.tries.connecting(f"{host}:{port}", loop.time())
        stream = _Stream(ticket, self._flush, dial_options.settings.peer_silence_ms, bulk=bulk)
        if dial_options.tls is None:
            await loop.create_connection(lambda: stream, *at)
            return stream
        clear, _ = await loop.create_connection(asyncio.Protocol, *at)
        try:
            clear.write(pass_of(ticket))
            secured = await loop.start_tls(
                clear, stream, dial_options.tls.client, server_hostname=home.strip("[]")
            )
            if secured is None or secured.is_closing():
                raise PeerAway("closed in the handshake, or right after it")
        except BaseException:
            clear.abort()
            raise
        stream.connection_made(secured)
        return stream


class _Stream(asyncio.Protocol):
    """A connection to a peer, written to only."""

    def __init__(
        self, ticket: bytes, resume: Callable[[_Stream], None], silence_ms: int, *, bulk: bool
    ) -> None:
        self.bulk = bulk
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
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # what waits, waits here, where it goes with the stream
            peer_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES_MAX)
        transport.write(opening(self._ticket))

    def write(self, sealed: bytes) -> None:
        self._spoke = True
        self._transport.write(framed(sealed))

    def spoke(self) -> bool:
        """Return whether anything was written since the last call."""
        spoke, self._spoke = self._spoke, False
        return spoke

    def pause_writing(self) -> None:
        self.takes = False

    def resume_writing(self) -> None:
        self.takes = True
        self._resume(self)

    def eof_received(self) -> None:
        """Let the transport close: the peer wants no more."""

    def connection_lost(self, error: Exception | None) -> None:
        self.takes = False
        if not self.ended.done():
            self.ended.set_result(None)

    def end(self) -> None:
        self._transport.abort()
