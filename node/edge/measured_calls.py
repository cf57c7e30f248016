"""gRPC handlers whose steps on the event loop are measured, each under its method's name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import grpc

from tarry.node.edge.grpc_types import CallContext, ServiceHandler
from tarry.replication.loop_holds import Holds


class Measured(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """A service's handlers, measured."""

    def __init__(self, handler: ServiceHandler, holds: Holds) -> None:
        self._handler = handler
        self._holds = holds
        self._made: dict[str, Any] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """As GenericRpcHandler's."""
        path = handler_call_details.method
        made = self._made.get(path)
        if made is None:
            handler = self._handler.service(handler_call_details)
            if handler is None:
                return None
            made = self._made[path] = self._measured(path.rpartition("/")[2], handler)
        return made

    def _measured(self, name: str, handler: Any) -> Any:
        if handler.unary_unary:
            return handler._replace(unary_unary=self._unary(name, handler.unary_unary))
        if handler.unary_stream:
            return handler._replace(unary_stream=self._stream(name, handler.unary_stream))
        return handler._replace(stream_stream=self._stream(name, handler.stream_stream))

    def _unary(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        holds = self._holds

        async def measured(request: Any, context: CallContext) -> Any:
            return await holds.steps(name, call(request, context))

        return measured

    def _stream(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        holds = self._holds

        async def measured(request: Any, context: CallContext) -> AsyncIterator[Any]:
            async with aclosing(call(request, context)) as responses:
                while True:
                    try:
                        response = await holds.steps(name, anext(responses))
                    except StopAsyncIteration:
                        return
                    yield response

        return measured
