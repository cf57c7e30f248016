"""The gateway in this process, where no node answers, and receivers of pushes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from tarry.client.settings import Settings
from tarry.gateway.http.app import gateway_app
from tarry.gateway.http.config import Config, Limits

NOBODY = Settings(servers=("127.0.0.1:1",), deadline_ms=200, attempt_ms=100)
URL = "http://127.0.0.1:8090"


@asynccontextmanager
async def asked(app: Starlette, url: str = URL) -> AsyncIterator[httpx.AsyncClient]:
    """Yield an HTTP client of an application in this process, which runs meanwhile."""
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url=url) as client,
    ):
        yield client


def alone(**limits: Any) -> Starlette:
    """Return the application with these limits, where no node answers."""
    config = Config(limits=Limits(**limits))
    return gateway_app(NOBODY, config, ("Gateway.Example",), ("https://shop.example",))


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client of a gateway where no node answers."""
    async with asked(alone()) as client:
        yield client
