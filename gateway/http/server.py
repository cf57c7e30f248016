"""The gateway as a process: served on a socket until the process is told to end."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from tarry.client.settings import Settings
from tarry.gateway.http.app import end, gateway_app
from tarry.gateway.http.config import Config, Limits
from tarry.gateway.http.connection import connection_of


@dataclass(frozen=True, slots=True)
class Certificate:
    """PEM files of the gateway's own certificate."""

    certificate: Path
    key: Path


async def serve(
    settings: Settings,
    config: Config,
    listener: socket.socket,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    certificate: Certificate | None = None,
) -> None:
    """Serve on a listening socket until SIGINT or SIGTERM. Raises OSError, ssl.SSLError for certificates."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    app = gateway_app(settings, config, hosts, origins)
    handshake_s = config.limits.head_ms / 1_000
    running = _Server(uvicorn_config(app, config.limits, certificate), lambda: end(app), handshake_s)
    app.state.pushes.on_failed = running.fail
    await running.serve(sockets=[listener])
    if running.failure is not None:
        raise running.failure
    if not running.started and not running.told_to_end:
        raise RuntimeError("the gateway did not start: the log says why")


def uvicorn_config(app: ASGIApp, limits: Limits, certificate: Certificate | None = None) -> uvicorn.Config:
    """Return how uvicorn serves an application within the limits."""
    return uvicorn.Config(
        app,
        log_config=None,
        log_level="error",  # each request that is no HTTP would be a line
        access_log=False,
        server_header=False,
        proxy_headers=False,
        http=connection_of(limits),
        ws="none",
        lifespan="on",
        timeout_keep_alive=math.ceil(limits.head_ms / 1_000) + 1,  # the connection's own bound comes first
        timeout_graceful_shutdown=math.ceil(limits.end_ms / 1_000),
        ssl_certfile=None if certificate is None else certificate.certificate,
        ssl_keyfile=None if certificate is None else certificate.key,
    )


class _Server(uvicorn.Server):
    """A server that has what waits end as it is told to end, and leaves the exit code to the command."""

    def __init__(self, config: uvicorn.Config, on_end: Callable[[], None], handshake_s: float) -> None:
        super().__init__(config)
        self._on_end = on_end
        self._handshake_s = handshake_s
        self.failure: BaseException | None = None
        self.told_to_end = False

    def fail(self, error: BaseException) -> None:
        """End, because of a defect."""
        self.failure = self.failure or error
        self.should_exit = True
        self._on_end()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin, with a bound for TLS handshakes: uvicorn has no setting for it, and asyncio's is 60 s."""
        loop: Any = asyncio.get_running_loop()
        create = loop.create_server
        if self.config.ssl is not None:
            loop.create_server = partial(create, ssl_handshake_timeout=self._handshake_s)
        try:
            await super().startup(sockets)
        finally:
            loop.create_server = create

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop, numbers = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)
        for number in numbers:
            loop.add_signal_handler(number, self._told_to_end)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _told_to_end(self) -> None:
        self.force_exit = self.should_exit  # the second time
        self.told_to_end = self.should_exit = True
        self._on_end()
