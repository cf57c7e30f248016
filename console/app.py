"""The console as an ASGI application."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from tarry.client.errors import TarryError
from tarry.client.settings import Settings
from tarry.console.accesses import SWEEP_S, Accesses
from tarry.console.folders import NONE, Folders
from tarry.console.guard import Guard
from tarry.console.pages import (
    ahead,
    ahead_range,
    audit,
    cluster,
    groups,
    jobs,
    message,
    messages,
    now,
    purge,
    reconciliation,
    schedules,
    search,
    sign_in,
    topics,
)
from tarry.console.pages import backups as backups_page
from tarry.console.pages.backups import Downloads
from tarry.console.rendering import HERE, http_error_page, tarry_error_page

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
STREAMS_MAX: Final = 200
"""Event streams open at once; pages beyond show what they had when they were opened."""
PAGES: Final = (
    now,
    ahead,
    ahead_range,
    topics,
    purge,
    groups,
    schedules,
    message,
    messages,
    cluster,
    backups_page,
    audit,
    jobs,
    reconciliation,
    search,
    sign_in,
)


class Console:
    """State that all pages share."""

    def __init__(self, settings: Settings, folders: Folders) -> None:
        self.folders = folders
        self.reading = asyncio.Semaphore()  # of the folders' files: one visitor's at a time in memory
        self.downloads = Downloads()
        self.accesses = Accesses(settings, time.monotonic)
        self.streams_left = STREAMS_MAX


async def _sweep(accesses: Accesses) -> None:
    while True:
        await asyncio.sleep(SWEEP_S)
        await accesses.sweep()


def console_app(settings: Settings, hosts: Iterable[str] = (), folders: Folders = NONE) -> Starlette:
    """Return the application for the cluster of these settings; their token is not used.

    ``hosts``: names under which browsers reach it, beside those of loopback.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        sweeping = asyncio.create_task(_sweep(app.state.console.accesses))
        yield
        sweeping.cancel()
        await app.state.console.accesses.close()

    names = frozenset(host.strip("[]").lower() for host in (*LOOPBACK, *hosts))
    app = Starlette(
        routes=[
            Mount("/static", StaticFiles(directory=HERE / "static")),
            *(route for page in PAGES for route in page.ROUTES),
        ],
        middleware=[
            Middleware(Guard, hosts=names),
            Middleware(GZipMiddleware, minimum_size=1_000),
        ],
        exception_handlers={HTTPException: http_error_page, TarryError: tarry_error_page},
        lifespan=lifespan,
    )
    app.state.console = Console(settings, folders)
    return app
