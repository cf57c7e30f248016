"""Signing in with a token of the cluster, and out."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from tarry.client.errors import NotPermitted
from tarry.console.guard import cookie_header, form_of
from tarry.console.rendering import render

TOKEN_CHARACTERS_MAX: Final = 4_096


async def _form(request: Request) -> Response:
    return _page(request, request.query_params.get("next", "/"))


def _page(request: Request, to: str, fault: str = "", status: int = 200) -> Response:
    return render(request, "sign_in.html", next=to, fault=fault, status=status)


async def _sign_in(request: Request) -> Response:
    form = await form_of(request)
    to, token = _inside(form.get("next", "/")), form.get("token", "").strip()
    if not 0 < len(token) <= TOKEN_CHARACTERS_MAX:
        return _page(request, to, "Give a token of the cluster.", 400)
    accesses = request.app.state.console.accesses
    try:
        cookie = await accesses.sign_in(token)
    except NotPermitted:
        return _page(request, to, "The cluster knows no such token.", 403)
    except ValueError:
        return _page(request, to, "A token has printable ASCII characters only.", 400)
    accesses.sign_out(request.state.cookie)
    response = RedirectResponse(to, 303)
    response.headers["set-cookie"] = cookie_header(cookie, request.url.scheme)
    return response


async def _sign_out(request: Request) -> Response:
    await form_of(request)
    request.app.state.console.accesses.sign_out(request.state.cookie)
    return RedirectResponse("/", 303)


def _inside(address: str) -> str:
    """Return the address if it is one of this site's pages; else that of the first."""
    plain = address.startswith("/") and not address.startswith(("//", "/\\"))
    return address if plain and address.isprintable() and address.isascii() else "/"


ROUTES: Final = (
    Route("/sign-in", _form),
    Route("/sign-in", _sign_in, methods=["POST"]),
    Route("/sign-out", _sign_out, methods=["POST"]),
)
