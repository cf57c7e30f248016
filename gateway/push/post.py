"""One post of a message to its receiver, and what its answer means."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import urljoin, urlsplit

import httpcore

from tarry.gateway.push.addresses import AddressRefused, CheckedNetwork
from tarry.gateway.push.settings import Push
from tarry.gateway.push.signature import HEADER, sign
from tarry.proto.version import VERSION

FOLLOWED: Final = frozenset({307, 308})
"""Redirects that keep the method and the body."""
BODY_BYTES_MAX: Final = 65_536
"""Of an answer that are read, so that its connection may be used again."""
HEADER_CHARACTERS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Posted:
    """Result of a post."""

    status: int | None
    """None: there was no answer."""
    text: str
    """Why it does not count."""
    retry_after_ms: int | None = None
    """As the receiver has asked for."""

    @property
    def taken(self) -> bool:
        """True where the receiver has taken the message."""
        return self.status is not None and 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message as its receiver is told of it."""

    id: str
    topic: str
    group: str
    due_ms: int
    attempt: int
    maybe_duplicate: bool
    properties: Mapping[str, str]
    body: bytes
    born_ms: int | None = None
    stored_ms: int | None = None
    delivered_ms: int | None = None

    def headers(self, content_type: str) -> dict[str, str]:
        """Return the headers without the signature."""
        named = self.properties.get("content-type", "")
        is_header = named.isascii() and named.isprintable() and 0 < len(named) <= HEADER_CHARACTERS_MAX
        times = {
            "Tarry-Born-Ms": self.born_ms,
            "Tarry-Stored-Ms": self.stored_ms,
            "Tarry-Delivered-Ms": self.delivered_ms,
        }
        known = {name: str(value) for name, value in times.items() if value is not None}
        return known | {
            "Content-Type": named.strip() or content_type if is_header else content_type,
            "User-Agent": f"tarry/{VERSION}",
            "Tarry-Id": self.id,
            "Tarry-Topic": self.topic,
            "Tarry-Group": self.group,
            "Tarry-Due-Ms": str(self.due_ms),
            "Tarry-Attempt": str(self.attempt),
            "Tarry-Maybe-Duplicate": "true" if self.maybe_duplicate else "false",
        }


class Receiver:
    """The URL of a push, with its connections."""

    def __init__(self, push: Push) -> None:
        context = ssl.create_default_context(cafile=push.authority_file)
        self._push = push
        self._network = CheckedNetwork(allow_private=push.allow_private)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context,
            max_connections=push.in_flight_max,
            max_keepalive_connections=push.in_flight_max,
            keepalive_expiry=30.0,
            network_backend=self._network,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.aclose()
        self._network.close()

    async def post(self, delivery: Delivery, now_s: float) -> Posted:
        """Post a message within the push's time."""
        signature = sign(delivery.body, delivery.id, int(now_s), self._push.secrets)
        headers = {**delivery.headers(self._push.content_type), HEADER: signature}
        try:
            async with asyncio.timeout(self._push.timeout_ms / 1_000):
                return await self._follow(delivery.body, headers)
        except TimeoutError:
            return Posted(None, f"no answer within {self._push.timeout_ms} ms")
        except AddressRefused as refused:
            return Posted(None, str(refused))
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            return Posted(None, f"{type(error).__name__}: {error}".rstrip(": "))
        except (ssl.SSLError, httpcore.UnsupportedProtocol, UnicodeError, ValueError) as error:
            return Posted(None, f"{type(error).__name__}: {error}")

    async def _follow(self, body: bytes, headers: dict[str, str]) -> Posted:
        url = self._push.url
        for left in range(self._push.redirects_max, -1, -1):
            status, answered = await self._send(url, body, headers)
            location = answered.get("location", "")
            if status not in FOLLOWED or not location or not left:
                break
            target = urljoin(url, location)
            if not target.isascii() or urlsplit(target).scheme not in _schemes(self._push, url):
                return Posted(status, f"redirects to {target[:200]!r}, which is not followed")
            url = target
        return Posted(
            status, f"answered {status}", retry_after_ms(answered.get("retry-after", ""), time.time())
        )

    async def _send(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, str]]:
        given: Sequence[tuple[str, str]] = [*headers.items(), ("Content-Length", str(len(body)))]
        host = urlsplit(url).netloc.rpartition("@")[2]
        async with self._pool.stream("POST", url, headers=[("Host", host), *given], content=body) as response:
            answered = {
                name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers
            }
            read_bytes = 0
            async for part in response.aiter_stream():
                read_bytes += len(part)
                if read_bytes > BODY_BYTES_MAX:
                    break
            return response.status, answered


def _schemes(push: Push, url: str) -> frozenset[str]:
    """Return the schemes to which a URL may redirect: never from https to what is readable on its way."""
    may_be_read = push.allow_private and urlsplit(url).scheme == "http"
    return frozenset({"https", "http"} if may_be_read else {"https"})


def retry_after_ms(text: str, now_s: float) -> int | None:
    """Return the time that a Retry-After header asks for; None: it asks for nothing that can be read."""
    text = text.strip()
    if text.isdecimal() and text.isascii():
        return int(text[:10]) * 1_000
    try:
        time_s = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    if time_s.tzinfo is None:
        time_s = time_s.replace(tzinfo=UTC)
    return max(0, int((time_s - datetime.fromtimestamp(now_s, UTC)).total_seconds() * 1_000))
