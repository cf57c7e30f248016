"""Behaviours of gRPC methods whose steps on the event loop are measured, each under its method's name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from tarry.node.edge.grpc_types import CallContext
from tarry.replication.loop_holds import Holds


def measured(call: Callable[..., Any], holds: Holds, name: str, *, streams: bool) -> Callable[..., Any]:
    """Return the same behaviour, measured; ``streams``: it is an asynchronous generator of responses."""

    async def answer(request: Any, context: CallContext) -> Any:
        return await holds.steps(name, call(request, context))

    async def answers(request: Any, context: CallContext) -> AsyncIterator[Any]:
        async with aclosing(call(request, context)) as responses:
            while True:
                try:
                    response = await holds.steps(name, anext(responses))
                except StopAsyncIteration:
                    return
                yield response

    return answers if streams else answer
