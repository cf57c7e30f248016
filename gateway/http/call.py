"""A request that is checked, as operations get it, and what all requests share."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from tarry.client.aio import Producer, Query
from tarry.client.settings import Settings
from tarry.gateway.http.admission import Admission
from tarry.gateway.http.clients import Access, Accesses
from tarry.gateway.http.config import Limits
from tarry.gateway.poll import Returns

if TYPE_CHECKING:
    from tarry.gateway.http.event_stream import EventStream


class Gateway:
    """State that all requests share."""

    def __init__(self, settings: Settings, limits: Limits) -> None:
        self.limits = limits
        self.accesses = Accesses(settings, limits, time.monotonic)
        self.admission = Admission(limits)
        self.streams: dict[str, EventStream] = {}
        """Event streams that are open, by the names of their consumers."""
        self.returns = Returns()
        self.ending = asyncio.Event()
        """Set once the process is told to end: what waits ends."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request: its parts are checked. ``query`` and ``body`` are of the types that its operation names."""

    request: Request
    gateway: Gateway
    access: Access
    path: dict[str, str]
    query: Any
    body: Any

    @property
    def producer(self) -> Producer:
        """The producer of the caller's token."""
        return self.access.producer

    def cluster_query(self) -> Query:
        """Return a query with the caller's token."""
        return self.access.client.query()

    async def disconnected(self) -> None:
        """Return once the caller is gone. The request's body has been read."""
        while (await self.request.receive())["type"] != "http.disconnect":
            pass
