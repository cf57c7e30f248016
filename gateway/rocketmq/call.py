"""A call that is admitted, and what all calls share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import grpc

from tarry.client.settings import Settings
from tarry.gateway.cluster_access import ClusterAccess
from tarry.gateway.rocketmq.access import Accesses, Caller
from tarry.gateway.rocketmq.admission import Admission
from tarry.gateway.rocketmq.checks import Checks
from tarry.gateway.rocketmq.codes import Refusal
from tarry.gateway.rocketmq.config import Config
from tarry.gateway.rocketmq.handles import Handles
from tarry.gateway.rocketmq.policies import Policies
from tarry.gateway.rocketmq.presence import Presence
from tarry.gateway.rocketmq.protocol.definition_pb2 import Code
from tarry.gateway.rocketmq.renewal import Renewals
from tarry.gateway.rocketmq.routes import Routes

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
CLIENT_ID_CHARS_MAX: Final = 255
ANSWER_MS: Final = 200
"""Of a client's deadline, kept for the answer's way back."""
Answer = TypeVar("Answer")


class Unread(Exception):
    """A client does not read what it has asked for, or is gone."""


class Gateway:
    """State that all calls share: nothing of it has to outlive the process."""

    def __init__(self, settings: Settings, config: Config, routes: Routes) -> None:
        self.config, self.routes = config, routes
        self.accesses = Accesses(settings, config)
        self.policies = Policies(settings, time.monotonic)
        self.admission = Admission(config.limits)
        self.handles = Handles(config.secrets)
        self.presence = Presence(config.limits.client_silent_ms, time.monotonic)
        self.renewals = Renewals(config.limits, self.presence, time.monotonic)
        self.giving_back: set[asyncio.Task[None]] = set()
        """Of calls that have ended without their client."""
        self.checks = Checks(config, self.handles)
        self.ending = asyncio.Event()
        """Set once the process is told to end: what waits ends."""

    async def close(self) -> None:
        """Close all clients of the cluster, once what nobody has received is given back."""
        await self.checks.close()
        await asyncio.gather(*self.giving_back)
        await asyncio.gather(self.accesses.close(), self.policies.close())


@dataclass(frozen=True, slots=True)
class Call:
    """A call: who makes it, and until when it has to be answered."""

    gateway: Gateway
    access: ClusterAccess
    client_id: str
    language: str
    """As the client names it: ``PYTHON``, ``JAVA``, ``GO``; Node's says ``HTTP``."""
    remaining_ms: int | None
    """Of the client's deadline as the call began; None: it has none, as calls of Go may."""

    @property
    def caller(self) -> Caller:
        """The client that calls."""
        return self.access, self.client_id

    @property
    def budget_s(self) -> float:
        """Time in which to answer a call that does not wait."""
        most_ms = self.gateway.config.limits.call_ms
        if self.remaining_ms is not None:
            most_ms = min(most_ms, max(self.remaining_ms - ANSWER_MS, self.remaining_ms // 2))
        return most_ms / 1_000

    async def write(self, write: Callable[[Answer], Awaitable[None]], answer: Answer) -> None:
        """Write a part of an answer, which the client has to take in time. Raises Unread.

        gRPC names no error that a write has where the connection is cut; it cancels the call, too, but later.
        """
        try:
            async with asyncio.timeout(self.gateway.config.limits.call_ms / 1_000):
                await write(answer)
        except Exception as error:
            raise Unread from error


def call_of(context: Context, gateway: Gateway) -> Call:
    """Return the call of a context, by its headers. Raises Refusal."""
    headers = {name: value for name, value in context.invocation_metadata() or () if isinstance(value, str)}
    client_id = headers.get("x-mq-client-id", "")
    if not client_id:
        raise Refusal(Code.CLIENT_ID_REQUIRED, "client id cannot be empty")
    if len(client_id) > CLIENT_ID_CHARS_MAX:
        text = f"client id is longer than {CLIENT_ID_CHARS_MAX} characters"
        raise Refusal(Code.CLIENT_ID_REQUIRED, text)
    access = gateway.accesses.of(headers.get("authorization", ""), headers.get("x-mq-date-time", ""))
    gateway.presence.seen((access, client_id))
    remaining_s = context.time_remaining()
    remaining_ms = None if remaining_s is None else max(0, int(remaining_s * 1_000))
    return Call(gateway, access, client_id, headers.get("x-mq-language", "").upper(), remaining_ms)
