"""The guard before all pages: headers, the visitor's cookie, and bounds and origin of what is sent."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tarry.console.accesses import new_cookie

COOKIE: Final = "tarry_console"
COOKIE_CHARACTERS_MAX: Final = 100
FORM_BYTES_MAX: Final = 1024 * 1024
FIELDS_MAX: Final = 100
QUERY_CHARACTERS_MAX: Final = 2_000
"""Links repeat the query of their page."""
FORM_TOKEN: Final = "form_token"
HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """ASGI middleware: gives each visitor a cookie, and each answer the headers that browsers go by.

    ``hosts``: the names under which browsers reach it. Requests for others are refused, so that no other
    site can make its own name lead here and read what a visitor may.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        if _host_name(connection.headers.get("host", "")) not in self._hosts:
            text = "this is no name of the console: name it with --host\n"
            await PlainTextResponse(text, 421)(scope, receive, send)
            return
        if len(scope["query_string"]) > QUERY_CHARACTERS_MAX:
            text = f"a query has {QUERY_CHARACTERS_MAX:,} characters at most\n"
            await PlainTextResponse(text, 414)(scope, receive, send)
            return
        given = connection.cookies.get(COOKIE, "")
        known = 0 < len(given) <= COOKIE_CHARACTERS_MAX
        cookie = given if known else new_cookie()
        scope.setdefault("state", {})["cookie"] = cookie
        if not scope["path"].startswith("/live/"):
            scope["app"].state.console.accesses.used(cookie)
        static = scope["path"].startswith("/static/")

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "max-age=3600" if static else "no-store")
                if not known and not static and "set-cookie" not in headers:
                    headers["set-cookie"] = cookie_header(cookie, scope["scheme"])
            await send(message)

        await self._app(scope, receive, with_headers)


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def cookie_header(cookie: str, scheme: str) -> str:
    """Return the header that sets a visitor's cookie, not for scripts.

    Lax, since browsers do not send a Strict one as a link of another site is followed.
    """
    secure = "; Secure" if scheme == "https" else ""
    return f"{COOKIE}={cookie}; Path=/; HttpOnly; SameSite=Lax{secure}"


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form that this visitor has sent from a page of ours, without its token.

    Of a field that is there twice the last counts. Raises HTTPException: 403, 413 or 400.
    """
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > FORM_BYTES_MAX:
            raise HTTPException(413, f"a form has {FORM_BYTES_MAX:,} bytes at most: send less")
    try:
        fields = dict(
            parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=False, max_num_fields=FIELDS_MAX)
        )
    except ValueError:
        raise HTTPException(400, f"this is no form of at most {FIELDS_MAX} fields") from None
    accesses = request.app.state.console.accesses
    if not accesses.is_form_token(request.state.cookie, fields.pop(FORM_TOKEN, "")):
        raise HTTPException(403, "the form is of another visit: go back, load the page again, and repeat")
    return fields
