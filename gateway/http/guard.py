"""The guard before all operations: the name that was called, the web site that calls, and headers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tarry.gateway.http.errors import GatewayReason, RequestRefused, answer_of_error

QUERY_CHARACTERS_MAX: Final = 8_000
HEADERS: Final = {
    "content-security-policy": "default-src 'none'; style-src 'self'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
OPEN_PATHS: Final = frozenset({"/", "/page.css", "/openapi.json", "/healthz", "/readyz", "/metrics"})
"""Pages that do nothing: links of other sites may lead to them, and probes may call them by any name."""
PROBES: Final = frozenset({"/healthz", "/readyz"})
BROWSERS: Final = "Mozilla/"
"""What the name of every browser begins with, and no page can change."""


class Guard:
    """ASGI middleware that refuses what a foreign web site has a browser send.

    Where the cluster has no tokens, whoever can send a request may do everything. So a name that is not one
    of ``hosts`` is refused, by which a site could make its own name lead here, and so is an origin other than
    the gateway's own and ``origins``. No site can make an IP address lead elsewhere, so these are answered.
    Over plain HTTP a browser says of a GET neither whose page has sent it nor that it was typed, so these are
    refused, but to loopback. ``answered`` is told the status of each answer.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Collection[str],
        origins: Collection[str],
        answered: Callable[[Scope, int], None],
    ) -> None:
        self._app, self._hosts, self._origins = app, hosts, origins
        self._answered = answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        begun = False

        async def with_headers(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                self._answered(scope, message["status"])
            await send(message)

        try:
            self._check(scope, Headers(scope=scope))
        except RequestRefused as refused:
            await answer_of_error(refused)(scope, receive, with_headers)
            return
        try:
            await self._app(scope, receive, with_headers)
        except Exception:  # a defect, which is answered outside of here
            if not begun:
                self._answered(scope, 500)
            raise

    def _is_own(self, name: str) -> bool:
        return name in self._hosts or _is_address(name)

    def _check(self, scope: Scope, headers: Headers) -> None:
        host = headers.get("host", "")
        if scope["path"] not in PROBES and not self._is_own(host_name(host)):
            raise RequestRefused(GatewayReason.HOST_UNKNOWN, "this is no name of the gateway")
        if len(scope["query_string"]) > QUERY_CHARACTERS_MAX:
            text = f"a query has {QUERY_CHARACTERS_MAX:,} characters at most"
            raise RequestRefused(GatewayReason.QUERY_TOO_LONG, text)
        if scope["path"] in OPEN_PATHS and scope["method"] in {"GET", "HEAD"}:
            return
        browses = headers.get("user-agent", "").startswith(BROWSERS)
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "unknown" if browses else "none")
        own = {f"{scope['scheme']}://{host}", *self._origins}
        if (origin is not None and origin not in own) or (
            origin is None and site not in {"none", "same-origin"}
        ):
            text = "a page of another web site has sent this, or a browser that does not say which one"
            raise RequestRefused(GatewayReason.ORIGIN_REFUSED, text)


def _is_address(name: str) -> bool:
    """Return whether it is an IP address of a machine."""
    try:
        return not ip_address(name).is_unspecified
    except ValueError:
        return False


def host_name(host: str) -> str:
    """Return the name of a Host header, without its port; empty where it is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
