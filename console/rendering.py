"""Pages as HTML: templates, errors as pages, reviews of changes, and event streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from tarry.client.aio import Client
from tarry.client.cli.times import time_text
from tarry.client.errors import (
    Damaged,
    NotFound,
    NotPermitted,
    OutcomeUnknown,
    Overloaded,
    Refused,
    TarryError,
    Unavailable,
)
from tarry.client.operators.cluster_status import Rights
from tarry.console.accesses import Access
from tarry.console.forms import fingerprint
from tarry.console.guard import FORM_TOKEN
from tarry.console.views import cells
from tarry.console.watch import Look
from tarry.proto.reasons import Reason
from tarry.proto.version import VERSION

HERE: Final = Path(__file__).parent
RECONCILIATION: Final = "/reconciliation"
NAVIGATION: Final[tuple[tuple[str, str, str], ...]] = (
    ("/", "Now", "n"),
    ("/ahead", "Ahead", "a"),
    ("/topics", "Topics", "t"),
    ("/groups", "Groups", "g"),
    ("/schedules", "Schedules", "s"),
    ("/message", "Message", "m"),
    ("/cluster", "Cluster", "c"),
    ("/audit", "Audit", "u"),
    ("/jobs", "Jobs", "j"),
    (RECONCILIATION, "Reconciliation", "r"),
)
"""Address, title, and the key that opens it after ``g``."""
FOR_OPERATORS: Final[frozenset[str]] = frozenset({"/audit", RECONCILIATION})
"""Pages that others have nothing from."""
BEFORE: Final = "before"
"""Field of a review: the hash of the settings that it compares with."""
_STATUS: Final[tuple[tuple[type[TarryError], int], ...]] = (
    (NotPermitted, 403),
    (NotFound, 404),
    (Damaged, 500),
    (Refused, 409),
    (Overloaded, 503),
    (Unavailable, 503),
    (OutcomeUnknown, 504),
)

_templates = Environment(
    loader=FileSystemLoader(HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.globals.update(
    time=cells.time,
    iso=time_text,
    duration=cells.duration,
    size=cells.size,
    path=cells.path,
    link=cells.link,
    badge=cells.badge,
    VERSION=VERSION,
    FORM_TOKEN=FORM_TOKEN,
)


def access_of(request: Request) -> Access:
    """Return the visitor's access to the cluster."""
    access: Access = request.app.state.console.accesses.of(request.state.cookie)
    return access


def client_of(request: Request) -> Client:
    """Return a client with the visitor's token."""
    return access_of(request).client


def rights_of(look: Look | None) -> Rights:
    """Return what the visitor may do; nothing where no node says so."""
    return look.best.rights if look is not None and look.best is not None else Rights()


async def operators_look(request: Request) -> Look:
    """Return a look, where the visitor may operate. Raises NotPermitted.

    For what no node checks: the console's own folders.
    """
    look = await access_of(request).watch.look()
    if not rights_of(look).operate:
        raise NotPermitted(Reason.PERMISSION_DENIED, "this is for who may operate the cluster")
    return look


def render(request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
    """Return a page."""
    return HTMLResponse(_html(request, template, values), status)


def _html(request: Request, template: str, values: Mapping[str, Any]) -> str:
    accesses, cookie = request.app.state.console.accesses, request.state.cookie
    rights = rights_of(values["look"] if "look" in values else accesses.of(cookie).watch.last)
    return _templates.get_template(template).render(
        here=values.get("page") or _page_of(request.url.path),
        query=request.url.query,
        form_token=accesses.form_token(cookie),
        signed_in=accesses.knows(cookie),
        rights=rights,
        navigation=[
            one
            for one in NAVIGATION
            if (rights.operate or one[0] not in FOR_OPERATORS)
            and (one[0] != RECONCILIATION or request.app.state.console.folders.reports is not None)
        ],
        **values,
    )


def _page_of(address: str) -> str:
    """Return the address of the page whose event stream has this one; of a page itself the same."""
    page = address.removeprefix("/live")
    return "/" if page == "/now" else page


def confirmed(form: Mapping[str, str], before: Mapping[str, Any]) -> bool:
    """Return whether the visitor has agreed to a change of these settings, as they still are."""
    return bool(form.get("confirmed")) and form.get(BEFORE) == fingerprint(before)


def review(
    request: Request,
    title: str,
    sentences: Sequence[str],
    fields: Mapping[str, str],
    *,
    button: str,
    back: str,
    danger: bool = False,
) -> Response:
    """Return the page that says what a change will do, and asks; yes sends the same form, ``confirmed``."""
    return render(
        request,
        "review.html",
        title=title,
        sentences=sentences,
        fields={name: value for name, value in fields.items() if name != "confirmed"},
        button=button,
        back=back,
        danger=danger,
    )


def done(request: Request, title: str, sentences: Sequence[str], back: str, *, status: int = 200) -> Response:
    """Return the page that says what a change has done; pages opened next show it."""
    access_of(request).watch.outdate()
    return render(request, "done.html", title=title, sentences=sentences, back=back, status=status)


async def http_error_page(request: Request, error: Exception) -> Response:
    """Return what is wrong with a request, as a page."""
    assert isinstance(error, HTTPException)
    text = error.detail
    if error.status_code == HTTPStatus.NOT_FOUND and text == HTTPStatus.NOT_FOUND.phrase:
        text = "There is no such page."
    title = HTTPStatus(error.status_code).phrase
    return render(
        request, "error.html", title=title, text=text, advice="", facts={}, status=error.status_code
    )


async def tarry_error_page(request: Request, error: Exception) -> Response:
    """Return an error of the cluster as a page; who has to sign in is led there."""
    assert isinstance(error, TarryError)
    if error.reason == Reason.UNAUTHENTICATED:
        to = request.url.path if request.method == "GET" else "/"
        return RedirectResponse(f"/sign-in?{urlencode({'next': to})}", 303)
    return render(
        request,
        "error.html",
        title=error.reason,
        text=error.text,
        advice=advice_of(error),
        facts=dict(error.facts),
        status=next((status for kind, status in _STATUS if isinstance(error, kind)), 502),
    )


def advice_of(error: TarryError) -> str:
    """Return what to do about an error."""
    return (type(error).__doc__ or "").split("\n\n", maxsplit=1)[0]


def page(
    template: str, values_of: Callable[[Request, Look], Awaitable[Mapping[str, Any]]]
) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler of a page that shows a look and nothing else."""

    async def handler(request: Request) -> Response:
        look = await access_of(request).watch.look()
        return render(request, template, look=look, **await values_of(request, look))

    return handler


def live(
    template: str, values_of: Callable[[Request, Look], Awaitable[Mapping[str, Any]]]
) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler of an event stream: the part of a page that lives, anew with each look.

    Each is an event ``look`` with the template's HTML.
    """

    async def handler(request: Request) -> Response:
        if request.app.state.console.streams_left <= 0:
            raise HTTPException(503, "too many pages are open: close some")
        await access_of(request).watch.look()  # raises here where the visitor has to sign in
        return StreamingResponse(_events(request, template, values_of), media_type="text/event-stream")

    return handler


async def _events(
    request: Request, template: str, values_of: Callable[[Request, Look], Awaitable[Mapping[str, Any]]]
) -> AsyncIterator[str]:
    console, access = request.app.state.console, access_of(request)
    if console.streams_left <= 0:
        return
    console.streams_left -= 1
    try:
        async for look in access.watch.follow():
            if access_of(request) is not access:
                return  # the visitor is signed out
            yield _event("look", _html(request, template, {"look": look, **await values_of(request, look)}))
    except TarryError:
        return  # the token counts no more: the browser connects again, and is told
    finally:
        console.streams_left += 1


def _event(name: str, text: str) -> str:
    lines = "".join(f"data: {line}\n" for line in text.splitlines())
    return f"event: {name}\n{lines}\n"
