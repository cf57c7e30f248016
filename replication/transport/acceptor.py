"""Acceptor of connections, which keeps few of those that have not shown yet who they are.

    accept, a few at a time ─► stranger ─► (pass ─► TLS) ─► ticket ─► a peer's stream, counted here no more
                                  └─► closed: too late, or the oldest of too many

A stranger costs a descriptor and some KB. It keeps no peer out, whose ticket comes with its first bytes; nor
does it hold the event loop, which accepts so many in a time and no more. With TLS, what comes first is the
pass of a ticket: whoever lacks one gets no handshake, and whoever has shown it is no stranger.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from tarry.replication.transport.framing import PASS_BYTES
from tarry.replication.transport.interface import PeerTls

STRANGERS_MAX: Final = 64
ACCEPTS_MAX: Final = 8
"""At once. A peer's first bytes are read within four turns of the loop: fewer come till then than may be."""
ACCEPTS_PAUSE_S: Final = 0.005  # after so many
STARVED_PAUSE_S: Final = 0.1  # after one for which there was no descriptor, or that failed
BACKLOG: Final = 1024
TELL_S: Final = 10.0
_STARVED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Announce = Callable[[bytes, float], bool]
"""Says whether a pass lets in, at a time of the event loop."""
OnStrangers = Callable[["Counter[str]"], None]
"""Called, once in TELL_S at most, with how many connections have been ended so far, by reason."""


def ignored(_: Counter[str]) -> None:
    """Do nothing with the counts."""


class Entrant(ABC, asyncio.BufferedProtocol):
    """A connection that has not shown its ticket yet."""

    def __init__(self) -> None:
        self.entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once it has; cancelled where it never will."""

    @abstractmethod
    def end(self) -> None:
        """Close the connection at once."""


class Acceptor:
    def __init__(
        self,
        opening: Callable[[], Entrant],
        tls: PeerTls | None,
        announce: Announce,
        deadline_s: float,
        on_strangers: OnStrangers,
    ) -> None:
        """Take `deadline_s`, from a connection to its ticket; with TLS, to its pass, and twice from there."""
        self.ended: Counter[str] = Counter()
        self._opening = opening
        self._tls = tls
        self._announce = announce
        self._deadline_s = deadline_s
        self._on_strangers = on_strangers
        self._told_s = -TELL_S
        self._strangers: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._announced: set[asyncio.Task[None]] = set()  # no more than there were tickets
        self._sockets: list[socket.socket] = []

    @property
    def port(self) -> int:
        """0: it does not listen."""
        return int(self._sockets[0].getsockname()[1]) if self._sockets else 0

    async def listen(self, host: str, port: int) -> None:
        """Listen for streams; port 0: on any that is free. Raises OSError."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, address in dict.fromkeys((family, to[0]) for family, _, _, _, to in found):
            at = (str(address), port or self.port)
            self._sockets.append(socket.create_server(at, family=family, backlog=BACKLOG))
        for listening in self._sockets:
            listening.setblocking(False)
            self._resume(listening)

    def stop(self) -> None:
        loop, sockets = asyncio.get_running_loop(), self._sockets
        self._sockets = []
        for listening in sockets:
            loop.remove_reader(listening)
            listening.close()
        for entering in (*self._strangers, *self._announced):
            entering.cancel()

    def count(self, reason: str) -> None:
        """Count a connection that was ended."""
        self.ended[reason] += 1
        now_s = asyncio.get_running_loop().time()
        if now_s - self._told_s >= TELL_S:
            self._told_s = now_s
            self._on_strangers(self.ended)

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _pause(self, listening: socket.socket, pause_s: float) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        loop.call_later(pause_s, self._resume, listening)

    def _accept(self, listening: socket.socket) -> None:
        for accepted in range(ACCEPTS_MAX):
            try:
                connection, _address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # Linux tells here of the connection's network, too
                if error.errno not in _STARVED:
                    self.count("failed before it was accepted")
                elif not accepted:  # else the system may only say that there is none for a next one
                    self._end_oldest("no descriptor for another")
                self._pause(listening, STARVED_PAUSE_S)
                return
            self._take_in(connection)
        self._pause(listening, ACCEPTS_PAUSE_S)

    def _take_in(self, connection: socket.socket) -> None:
        if len(self._strangers) >= STRANGERS_MAX:
            self._end_oldest("too many without a ticket")
        task = asyncio.get_running_loop().create_task(self._meet(connection), name="stranger")
        self._strangers[task] = None
        task.add_done_callback(partial(self._gone, connection))

    def _gone(self, connection: socket.socket, stranger: asyncio.Task[None]) -> None:
        self._strangers.pop(stranger, None)
        self._announced.discard(stranger)
        if stranger.cancelled():  # before it began: nobody else has the socket
            connection.close()

    def _end_oldest(self, reason: str) -> None:
        oldest = next(iter(self._strangers), None)
        if oldest is not None:
            del self._strangers[oldest]
            oldest.cancel()
            self.count(reason)

    async def _meet(self, connection: socket.socket) -> None:
        """Wait until a connection has come in, or is to be closed."""
        loop, opening = asyncio.get_running_loop(), self._opening()
        connected = False
        try:
            async with asyncio.timeout(self._deadline_s) as patience:
                if self._tls is not None:
                    try:
                        await self._take_pass(connection)
                    except BaseException:
                        connection.close()
                        raise
                    patience.reschedule(loop.time() + 2 * self._deadline_s)
                tls = self._tls.server if self._tls is not None else None
                await loop.connect_accepted_socket(lambda: opening, connection, ssl=tls)
                connected = True
                await opening.entered
        except (OSError, asyncio.CancelledError) as error:  # TimeoutError is an OSError
            if connected:
                opening.end()
            if isinstance(error, TimeoutError):
                self.count("no ticket in time")

    async def _take_pass(self, connection: socket.socket) -> None:
        """Count a stranger as one no more, once it has shown its pass. Raises OSError."""
        loop, shown = asyncio.get_running_loop(), b""
        connection.setblocking(False)
        while len(shown) < PASS_BYTES:
            part = await loop.sock_recv(connection, PASS_BYTES - len(shown))
            if not part:
                break
            shown += part
        if not self._announce(shown, loop.time()):
            self.count("no good ticket")
            raise ConnectionAbortedError
        task = asyncio.current_task()
        assert task is not None
        if task in self._strangers:  # else it is being ended
            del self._strangers[task]
            self._announced.add(task)
