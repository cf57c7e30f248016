"""The HTTP port for metrics and probes, safe for whoever reaches it.

There are few connections at once, each with one request: a small head that comes in time, and an answer that
is read in time. Of the head only the first line counts, so there is little that could be misread.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Final, NamedTuple, TypeAlias

import structlog

from tarry.node.config import MetricsSettings
from tarry.node.failures import CallErrors
from tarry.replication.loop_holds import Holds

log = structlog.get_logger()

HEAD_BYTES_MAX: Final = 8 << 10
"""Of a request, with the empty line that ends it."""
WRITE_BYTES: Final = 64 << 10
"""Of a page, handed to a connection at once: more is in no buffer."""
LINGER_BYTES_MAX: Final = 64 << 10
"""Of what comes after the request: it is read and thrown away."""
ACCEPTS_MAX: Final = 16
"""Connections that are accepted in one turn of the event loop, and that wait for it."""
LOG_PERIOD_S: Final = 60.0

REQUEST_LINE: Final = re.compile(rb"([A-Z-]+) ([!-~]+) HTTP/1\.[01]")
"""No two of its parts may take the same byte, so matching takes linear time."""
METHODS: Final = (b"GET", b"HEAD")
TEXT: Final = "text/plain; charset=utf-8"


class Page(NamedTuple):
    """An answer."""

    status: int
    content_type: str
    body: bytes


Route: TypeAlias = Callable[[], Awaitable[Page]]

MALFORMED: Final = Page(400, TEXT, b"no HTTP/1.1 request\n")
NOT_ALLOWED: Final = Page(405, TEXT, b"only GET and HEAD\n")
TOO_LARGE: Final = Page(431, TEXT, b"the head of a request is 8 KiB at most\n")
FAILED: Final = Page(500, TEXT, b"an error in this node: its log tells of it\n")


class Port:
    """Serves pages by path. ``listen``, then ``close``."""

    def __init__(self, settings: MetricsSettings, routes: Mapping[str, Route], holds: Holds) -> None:
        self.refused = 0
        """Connections that were closed at once: there were too many."""
        self.ended = 0
        """Connections that were ended: a request did not come in time, or its answer was not read."""
        self._settings = settings
        self._routes = {path.encode(): route for path, route in routes.items()}
        self._holds = holds
        self._errors = CallErrors()
        self._connections = set[asyncio.Task[None]]()
        self._server: asyncio.Server | None = None
        self._told_s = -LOG_PERIOD_S
        self._unknown = Page(404, TEXT, f"no such page; there are {', '.join(routes)}\n".encode())

    @property
    def connections(self) -> int:
        """The number of open ones."""
        return len(self._connections)

    async def listen(self) -> str:
        """Listen at the address of the settings; return it, with the port that it has. Raises OSError."""
        host, _, port = self._settings.listen.rpartition(":")
        self._server = await asyncio.start_server(
            self._accept, host.strip("[]"), int(port), limit=HEAD_BYTES_MAX, backlog=ACCEPTS_MAX
        )
        return f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Listen no more, and end what is open."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        if self._connections:
            for task in self._connections:
                task.cancel()
            await asyncio.wait(self._connections)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Begin with a connection, or close it at once."""
        if self._server is None or len(self._connections) >= self._settings.connections_max:
            self.refused += 1
            writer.transport.abort()
            self._tell_refused()
            return
        writer.transport.set_write_buffer_limits(high=0)  # a wait for it is one until all has left
        work = self._holds.steps("metrics", self._serve(reader, writer))
        task = asyncio.create_task(work, name="metrics")
        self._connections.add(task)
        task.add_done_callback(partial(self._end, writer))

    def _end(self, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        """Close a connection: what it was sent has left, or is wanted no more."""
        self._connections.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._errors.log(error)
        writer.transport.abort()

    def _tell_refused(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._told_s >= LOG_PERIOD_S:
            self._told_s = now_s
            log.warning(
                "metrics connections closed: too many at once",
                so_far=self.refused,
                connections_max=self._settings.connections_max,
            )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the one request of a connection, and end it."""
        within_s = self._settings.request_ms / 1_000
        try:
            async with asyncio.timeout(within_s):
                head = await _read_head(reader)
            if head is None:
                return
            answer = await self._answer(head)
            async with asyncio.timeout(within_s):
                await _write(writer, answer)
                await _linger(reader)
        except TimeoutError:
            self.ended += 1
        except OSError:
            pass  # the client has gone

    async def _answer(self, head: bytes | Page) -> tuple[bytes, bytes]:
        """Return the head and the body of the answer to a request."""
        if isinstance(head, Page):
            return _head(head), head.body
        found = REQUEST_LINE.fullmatch(head.partition(b"\r\n")[0])
        if found is None:
            return _head(MALFORMED), MALFORMED.body
        method, target = found.groups()
        page = NOT_ALLOWED if method not in METHODS else await self._page(target.partition(b"?")[0])
        return _head(page), b"" if method == b"HEAD" else page.body

    async def _page(self, path: bytes) -> Page:
        route = self._routes.get(path)
        if route is None:
            return self._unknown
        try:
            return await route()
        except Exception as error:  # noqa: BLE001 - as of a call: it ends with its error, the node does not
            self._errors.log(error)
            return FAILED


async def _read_head(reader: asyncio.StreamReader) -> bytes | Page | None:
    """Return the head of a request, without its end, or what is wrong with it; None: there is none."""
    head = bytearray()
    while chunk := await reader.read(HEAD_BYTES_MAX - len(head)):
        seen = max(0, len(head) - 3)  # its end may have begun there
        head += chunk
        if not ord("A") <= head[0] <= ord("Z"):
            return MALFORMED  # at once: TLS, say, would wait for an answer
        end = head.find(b"\r\n\r\n", seen)
        if end >= 0:
            return bytes(head[:end])
        if len(head) == HEAD_BYTES_MAX:
            return TOO_LARGE
    return None


def _head(page: Page) -> bytes:
    lines = [
        f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {len(page.body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if page.status == HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    return "\r\n".join((*lines, "", "")).encode()


async def _write(writer: asyncio.StreamWriter, answer: tuple[bytes, bytes]) -> None:
    """Write head and body as fast as they are read, and say that there is no more."""
    for part in answer:
        for start in range(0, len(part), WRITE_BYTES):
            writer.write(part[start : start + WRITE_BYTES])
            await writer.drain()
    writer.write_eof()


async def _linger(reader: asyncio.StreamReader) -> None:
    """Read what still comes, until the client has closed: else the system would take the answer back."""
    left = LINGER_BYTES_MAX
    while left > 0 and (junk := await reader.read(left)):
        left -= len(junk)
