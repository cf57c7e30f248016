"""The console as a process: the pages, served on a socket until the process is told to end."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn

from tarry.client.settings import Settings
from tarry.console.app import console_app
from tarry.console.folders import NONE, Folders

CLOSE_S: Final = 2
"""For which open requests may go on once the process is told to end."""
CONNECTIONS_MAX: Final = 500


async def serve(
    settings: Settings, listener: socket.socket, hosts: Iterable[str] = (), folders: Folders = NONE
) -> None:
    """Serve the pages on a listening socket until SIGINT or SIGTERM.

    ``hosts``: names under which browsers reach it, beside those of loopback.
    """
    app = console_app(settings, hosts, folders)
    config = uvicorn.Config(
        app,
        log_level="warning",
        server_header=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=CLOSE_S,
        ws="none",
    )
    await _Server(config, app.state.console.accesses.end).serve(sockets=[listener])


class _Server(uvicorn.Server):
    """A server that ends with its event streams, and leaves the exit code to the command."""

    def __init__(self, config: uvicorn.Config, on_end: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_end = on_end

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
        self.should_exit = True
        self._on_end()
