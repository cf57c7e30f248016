"""The gateway as an ASGI application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from tarry.client.errors import NotPermitted, TarryError
from tarry.client.settings import Settings
from tarry.gateway.http import page
from tarry.gateway.http.bodies import json_of, made
from tarry.gateway.http.call import Call, Gateway
from tarry.gateway.http.checks import bearer_token, body_fields, query_fields
from tarry.gateway.http.clients import SWEEP_S
from tarry.gateway.http.config import Config
from tarry.gateway.http.errors import GatewayReason, RequestRefused, answer_of_error
from tarry.gateway.http.fields import Given
from tarry.gateway.http.guard import HEADERS, Guard
from tarry.gateway.http.metrics import Requests, text
from tarry.gateway.http.openapi import document
from tarry.gateway.http.operations import OPERATIONS, Operation
from tarry.gateway.push.pushes import Pushes

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
READY_MS: Final = 2_000
"""Within which a node has to answer for the gateway to be ready."""
READY_KEPT_S: Final = 1.0
"""For which that answer counts, so that probes cost the cluster nothing."""
log = logging.getLogger(__name__)


class _Nothing(Given):
    """The query of an operation without one."""


def gateway_app(
    settings: Settings, config: Config, hosts: Iterable[str] = (), origins: Iterable[str] = ()
) -> Starlette:
    """Return the application for the cluster of these settings; their token is for pushes alone.

    ``hosts``: names under which it is called, beside those of loopback. ``origins``: of web sites whose pages
    may call it.
    """
    gateway = Gateway(settings, config.limits)
    pushes = Pushes(settings, config.push, config.limits.end_ms)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        sweeping = asyncio.create_task(_sweep(gateway))
        pushes.start()
        yield
        gateway.ending.set()
        sweeping.cancel()
        await pushes.close()
        await gateway.returns.end()
        await gateway.accesses.close()

    told, requests = document(), Requests()
    sites = list(origins)

    async def metrics(_: Request) -> Response:
        shown = text(requests, gateway.admission, len(gateway.accesses), pushes.pushers)
        return PlainTextResponse(shown, media_type="text/plain; version=0.0.4")

    names = frozenset(host.strip("[]").lower() for host in (*LOOPBACK, *hosts))
    cors = Middleware(
        CORSMiddleware,
        allow_origins=sites,
        allow_methods=["GET", "POST", "PATCH", "DELETE"],
        allow_headers=["authorization", "content-type"],
        expose_headers=["retry-after"],
    )
    app = Starlette(
        routes=[
            *map(_route, _ordered()),
            Route("/", _fixed(HTMLResponse(page.page(told)))),
            Route("/page.css", _fixed(PlainTextResponse(page.STYLE, media_type="text/css"))),
            Route("/openapi.json", _fixed(JSONResponse(told))),
            Route("/healthz", _fixed(PlainTextResponse("ok\n"))),
            Route("/readyz", _Readiness(gateway).answer),
            Route("/metrics", metrics),
        ],
        middleware=[
            *([cors] if sites else []),
            Middleware(Guard, hosts=names, origins=frozenset(sites), answered=requests.answered),
        ],
        exception_handlers={
            HTTPException: _http_error,
            RequestRefused: _refusal,
            TarryError: _refusal,
            ClientDisconnect: _gone,
            Exception: _defect,
        },
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # behind a proxy with TLS it would lead to http, with the token
    app.state.gateway, app.state.pushes = gateway, pushes
    return app


def end(app: Starlette) -> None:
    """Have what waits end, and nothing more be posted: the process is about to end."""
    app.state.gateway.ending.set()
    app.state.pushes.end()


def _ordered() -> list[Operation]:
    """Return the operations with those first whose paths have fewer parameters: the first route counts."""
    return sorted(OPERATIONS, key=lambda each: len(each.parameters))


def _route(operation: Operation) -> Route:
    route = Route(operation.path, _endpoint(operation), methods=[operation.method])
    if operation.answer is None and route.methods:
        route.methods.discard("HEAD")  # its consumer would take messages that nobody is told of
    return route


def _endpoint(operation: Operation) -> Any:
    async def endpoint(request: Request) -> Response:
        admission = request.app.state.gateway.admission
        with ExitStack() as place:
            place.enter_context((admission.polls if operation.polls else admission.calls).taken())
            answer = await _handled(operation, request)
            if isinstance(answer, Response):  # a stream, which has a place of its own
                return answer
            content = answer if isinstance(answer, bytes) else json_of(answer)
            return _Answer(content, operation.status, place.pop_all())

    endpoint.__name__ = operation.name
    return endpoint


async def _handled(operation: Operation, request: Request) -> BaseModel | bytes | Response:
    gateway: Gateway = request.app.state.gateway
    admission = gateway.admission
    async with AsyncExitStack() as stack:
        if gateway.ending.is_set():
            raise RequestRefused(GatewayReason.GATEWAY_ENDING, "the gateway is about to end")
        token = bearer_token(request.headers.get("authorization"))
        query = query_fields(request.query_params.multi_items(), operation.query or _Nothing)
        body = None
        if operation.body is not None:
            room = stack.enter_context(ExitStack())
            raw = await admission.body_of(request, room.enter_context(admission.bodies.taken(0)))
            body = await made(partial(body_fields, raw, operation.body), len(raw))
            if operation.polls:  # its few fields would hold room for as long as it waits
                room.close()
        access = await stack.enter_async_context(gateway.accesses.of(token))
        path = {name: str(value) for name, value in request.path_params.items()}
        return await operation.handle(Call(request, gateway, access, path, query, body))


class _Answer(Response):
    """An answer as JSON, which keeps its request's place until its caller has taken most of it.

    Else callers that do not read could have any number of answers in memory.
    """

    def __init__(self, content: bytes, status: int, place: ExitStack) -> None:
        super().__init__(content, status, media_type="application/json")
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._place:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            await send({"type": "http.response.body", "body": self.body, "more_body": True})
            await send({"type": "http.response.body"})  # waits for as long as what is before it is not taken


def _fixed(response: Response) -> Any:
    body, kind = bytes(response.body), response.headers["content-type"]

    async def endpoint(_: Request) -> Response:
        return Response(body, headers={"content-type": kind})

    return endpoint


class _Readiness:
    """The probe that asks whether a node answers; its answer counts for a moment."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._asked_s, self._text = float("-inf"), ""
        self._asking = asyncio.Lock()

    async def answer(self, _: Request) -> Response:
        """Answer 200 where a node answers, whatever it thinks of the token, and the gateway does not end."""
        if self._gateway.ending.is_set():
            return PlainTextResponse("about to end\n", 503)
        loop = asyncio.get_running_loop()
        async with self._asking:
            if loop.time() - self._asked_s > READY_KEPT_S:
                self._text = await self._fault()
                self._asked_s = loop.time()
        return PlainTextResponse(f"{self._text or 'ready'}\n", 503 if self._text else 200)

    async def _fault(self) -> str:
        try:
            async with asyncio.timeout(READY_MS / 1_000), self._gateway.accesses.of(None) as access:
                await access.client.operator().status()
        except NotPermitted:
            return ""
        except (TarryError, TimeoutError):
            return "no node answers: see that the nodes run, and that --server names them"
        return ""


async def _sweep(gateway: Gateway) -> None:
    while True:
        await asyncio.sleep(SWEEP_S)
        gateway.accesses.sweep()


async def _refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, TarryError | RequestRefused)
    return answer_of_error(error)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    reason = GatewayReason.METHOD_UNKNOWN if error.status_code == 405 else GatewayReason.PATH_UNKNOWN
    answer = answer_of_error(RequestRefused(reason, "the gateway has no such operation"))
    if error.status_code == 405:  # the error names those of the path's first route
        answer.headers["allow"] = ", ".join(sorted(_methods(request)))
    return answer


def _methods(request: Request) -> set[str]:
    """Return the methods of a request's path, each of which is a route."""
    routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    return {method for route in routes for method in route.methods or ()}


async def _gone(_: Request, __: Exception) -> Response:
    return Response(status_code=400)  # reaches nobody


async def _defect(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    answer = answer_of_error(RequestRefused(GatewayReason.INTERNAL, "the gateway has failed"))
    answer.headers.update(HEADERS)  # the guard has not seen it
    return answer
