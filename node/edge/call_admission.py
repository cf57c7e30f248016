"""Admission of calls to a node's services, decided before a byte of the request is read.

    headers ─► token? calls under way? ─► the request, within its time and size ─► the service

A caller without a good token costs its headers and a refusal: its request is neither received nor parsed. A
call whose request does not come is ended; so that silent ones are few, where there are many the oldest goes.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any, Final, NoReturn, TypeAlias

import grpc

from tarry.node.config import Connections
from tarry.node.edge.grpc_status import abort
from tarry.node.edge.grpc_types import CallContext, MethodHandler, ServiceHandler
from tarry.node.edge.measured_calls import measured
from tarry.node.failures import CallErrors
from tarry.proto.reasons import Reason
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine.refusal import Refusal

Admit: TypeAlias = Callable[[str, Any], Refusal | None]
"""From a method's path and the call's metadata: why the caller may not call."""

SUBSCRIBING: Final = "/tarry.v1.ConsumerService/Consume"
RIGHTS_CHANGED: Final = Refusal(
    Reason.RIGHTS_CHANGED, "this token may do less than when the stream began: begin it again", retry_ms=0
)
GRACE_S: Final = 1.0
"""A request that comes at all has come by then, unless it is large: no younger call makes room for others."""


class Entrance(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Handlers of services, each entered through here."""

    def __init__(
        self,
        services: Iterable[ServiceHandler],
        admit: Admit,
        bounds: Connections,
        request_bytes_max: Callable[[str], int | None] = lambda path: None,
        holds: Holds | None = None,
    ) -> None:
        """Take ``request_bytes_max`` of a method, by its path; None: what gRPC receives at most.

        ``holds``: measures the services' steps; None: nothing does.
        """
        self._holds = holds
        self._services = tuple(services)
        self._admit = admit
        self._bounds = bounds
        self._request_bytes_max = request_bytes_max
        self._entered: dict[str, MethodHandler] = {}
        self._waiting: dict[asyncio.Timeout, float] = {}  # for their requests, since when
        self._streams: dict[asyncio.Timeout, Any] = {}  # of responses, and their metadata
        self._errors = CallErrors()
        self.calls = 0
        """Under way."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> MethodHandler | None:
        """Return the method's handler; a refusing one, which reads nothing, for who may not call."""
        handler = self._handler(handler_call_details)
        if handler is None:
            return None
        refusal = self._admit(handler_call_details.method, handler_call_details.invocation_metadata)
        if refusal is None and self.calls >= self._bounds.calls_max:
            text = f"{self.calls} calls are under way at this node, its maximum (connections.calls_max)"
            refusal = Refusal(Reason.OVERLOADED, text, retry_ms=1_000)
        return handler if refusal is None else _refusing(refusal)

    def _handler(self, details: grpc.HandlerCallDetails) -> MethodHandler | None:
        path = details.method
        if path not in self._entered:
            found = next(filter(None, (service.service(details) for service in self._services)), None)
            if found is None:
                return None
            self._entered[path] = self._through(path, found)
        return self._entered[path]

    def _through(self, path: str, inner: MethodHandler) -> MethodHandler:
        """Return the handler with its request, or its first, waited for here."""
        wait_ms = self._bounds.subscribe_ms if path == SUBSCRIBING else self._bounds.request_ms
        behaviour: Any = inner.unary_unary or inner.unary_stream or inner.stream_stream
        if self._holds is not None:
            name = path.rpartition("/")[2]
            behaviour = measured(behaviour, self._holds, name, streams=inner.response_streaming)
        bytes_max = self._request_bytes_max(path)
        coders = inner.request_deserializer, inner.response_serializer

        async def given(requests: AsyncIterator[Any], context: CallContext) -> Any:
            first = await self._first(requests, context, wait_ms, bytes_max)
            if inner.request_streaming:
                return self._all(first, requests, context, bytes_max)
            if first is None:
                await abort(context, Refusal(Reason.REQUEST_EMPTY, "the call ended without a request"))
            return first

        async def answer(requests: AsyncIterator[Any], context: CallContext) -> Any:
            with self._counted():
                request = await given(requests, context)
                if not inner.response_streaming:
                    return await behaviour(request, context)
                async with self._revocable(path, context):
                    return await behaviour(request, context)

        async def answers(requests: AsyncIterator[Any], context: CallContext) -> AsyncIterator[Any]:
            with self._counted():
                request = await given(requests, context)
                async with (
                    self._revocable(path, context),
                    aclosing(behaviour(request, context)) as responses,
                ):
                    async for response in responses:
                        yield response

        if not inner.response_streaming:
            return grpc.stream_unary_rpc_method_handler(answer, *coders)
        streams = answers if inspect.isasyncgenfunction(behaviour) else answer
        return grpc.stream_stream_rpc_method_handler(streams, *coders)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self.calls += 1
        try:
            yield
        except Exception as error:
            self._errors.log(error)
            raise
        finally:
            self.calls -= 1

    def end_streams(self, does_less: Callable[[Any], bool]) -> int:
        """End the streams of which that is true, by their metadata; return how many. Other calls end soon."""
        ending = [until for until, metadata in self._streams.items() if does_less(metadata)]
        for until in ending:
            del self._streams[until]
            until.reschedule(asyncio.get_running_loop().time())
        return len(ending)

    @asynccontextmanager
    async def _revocable(self, path: str, context: CallContext) -> AsyncIterator[None]:
        """Say why, where `end_streams` ends it."""
        metadata, until = context.invocation_metadata(), asyncio.timeout(None)
        try:
            async with until:
                self._streams[until] = metadata
                yield
        except TimeoutError:
            if not until.expired():
                raise
            await abort(context, self._admit(path, metadata) or RIGHTS_CHANGED)
        finally:
            self._streams.pop(until, None)

    async def _first(
        self, requests: AsyncIterator[Any], context: CallContext, wait_ms: int, bytes_max: int | None
    ) -> Any:
        """Return the first request, None where there is none; end the call where it does not come."""
        now = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(wait_ms / 1_000) as patience:
                self._make_room(now)
                self._waiting[patience] = now
                try:
                    first = await anext(aiter(requests), None)
                finally:
                    self._waiting.pop(patience, None)
        except TimeoutError:
            reason = Reason.SUBSCRIBE_FIRST if wait_ms == self._bounds.subscribe_ms else Reason.REQUEST_EMPTY
            text = f"no request has come within {wait_ms} ms, or sooner where many calls have none"
            await abort(context, Refusal(reason, text))
        await _check(first, context, bytes_max)
        return first

    def _make_room(self, now: float) -> None:
        if len(self._waiting) >= self._bounds.waiting_calls_max:
            oldest, since = next(iter(self._waiting.items()))
            if now - since >= GRACE_S:
                del self._waiting[oldest]
                if not oldest.expired():
                    oldest.reschedule(now)

    async def _all(
        self, first: Any, requests: AsyncIterator[Any], context: CallContext, bytes_max: int | None
    ) -> AsyncIterator[Any]:
        if first is None:
            return
        yield first
        async for request in requests:
            await _check(request, context, bytes_max)
            yield request


async def _check(request: Any, context: CallContext, bytes_max: int | None) -> None:
    """End the call for a request of more bytes than what its method can name takes: parsing is one turn."""
    if bytes_max is not None and isinstance(request, bytes) and len(request) > bytes_max:
        text = f"the request has {len(request)} bytes, more than {bytes_max}: split it"
        await abort(context, Refusal(Reason.BATCH_TOO_LARGE, text))


def _refusing(refusal: Refusal) -> MethodHandler:
    """Return a handler that refuses the call, of whatever kind, without reading its request."""

    async def refuse(_: AsyncIterator[bytes], context: CallContext) -> NoReturn:
        await abort(context, refusal)

    return grpc.stream_unary_rpc_method_handler(refuse)
