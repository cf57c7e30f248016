"""Admission: how many requests, polls, streams and bytes of bodies there are at once."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import ClientDisconnect, Request

from tarry.gateway.http.config import Limits
from tarry.gateway.http.errors import GatewayReason, RequestRefused
from tarry.gateway.slots import Slots, Taken

JSON_TYPE: Final = "application/json"


class Admission:
    """The gateway's limits, and how much of each is in use."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.calls = Slots("requests", limits.calls_max, _busy)
        self.polls = Slots("calls of receive", limits.polls_max, _busy)
        self.streams = Slots("event streams", limits.streams_max, _busy)
        self.bodies = Slots("bytes of bodies", max(limits.bodies_bytes_max, limits.body_bytes_max), _busy)

    async def body_of(self, request: Request, room: Taken) -> bytes:
        """Return a request's body, which takes room as it comes. Raises RequestRefused, ClientDisconnect."""
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > self.limits.body_bytes_max:
            raise _too_large(self.limits.body_bytes_max)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != JSON_TYPE or "content-encoding" in request.headers:
            text = f"the body is of the type {kind[:60]!r}, or compressed"
            raise RequestRefused(GatewayReason.CONTENT_TYPE_UNKNOWN, text)
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_ms / 1_000):
                async for part in request.stream():
                    if len(body) + len(part) > self.limits.body_bytes_max:
                        raise _too_large(self.limits.body_bytes_max)
                    room.more(len(part))
                    body += part
        except TimeoutError:
            text = f"the body has not come within {self.limits.body_ms} ms"
            raise RequestRefused(GatewayReason.BODY_TOO_SLOW, text) from None
        return bytes(body)


def _too_large(most: int) -> RequestRefused:
    return RequestRefused(GatewayReason.BODY_TOO_LARGE, f"a body has {most:,} bytes at most")


__all__ = ["JSON_TYPE", "Admission", "ClientDisconnect", "Slots"]


def _busy(text: str) -> RequestRefused:
    return RequestRefused(GatewayReason.GATEWAY_BUSY, text)
