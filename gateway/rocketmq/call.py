"""A call that is admitted, and what all calls share."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

import grpc

from tarry.client.settings import Settings
from tarry.gateway.cluster_access import ClusterAccess
from tarry.gateway.poll import Returns
from tarry.gateway.rocketmq.access import Accesses, Caller
from tarry.gateway.rocketmq.admission import Admission
from tarry.gateway.rocketmq.checks import Checks
from tarry.gateway.rocketmq.codes import Refusal
from tarry.gateway.rocketmq.config import Config
from tarry.gateway.rocketmq.handles import Handles
from tarry.gateway.rocketmq.names import topic_of
from tarry.gateway.rocketmq.policies import Policies
from tarry.gateway.rocketmq.presence import Presence
from tarry.gateway.rocketmq.protocol.definition_pb2 import Code, Resource
from tarry.gateway.rocketmq.renewal import Renewals
from tarry.gateway.rocketmq.routes import Routes
from tarry.gateway.rocketmq.settlement import Settlement

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
CLIENT_ID_CHARS_MAX: Final = 255
CONSUMER_S: Final = 1.0
"""For which a client is a consumer of one name."""
ANSWER_MS: Final = 200
"""Of a client's deadline, kept for the answer's way back."""
Answer = TypeVar("Answer")


class Unread(Exception):
    """A client does not read what it has asked for, or is gone."""


async def within(work: Awaitable[Answer], timeout_s: float) -> Answer:
    """Return what a read or write of gRPC's returns. Raises TimeoutError, and what that raises."""
    task = left_to_grpc(work)
    await asyncio.wait({task}, timeout=timeout_s)
    if not task.done():
        raise TimeoutError
    return task.result()


def left_to_grpc(work: Awaitable[Answer]) -> asyncio.Future[Answer]:
    """Return a read or write of gRPC's that nobody cancels: gRPC would never free its message.

    It ends with its call, at the latest.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(_retrieved)
    return task


def _retrieved(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()  # nobody may wait for it any more: it is no news


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
        self.settlement = Settlement()
        self.returns = Returns()
        self.names = secrets.token_bytes(16)
        """Key of the names that the cluster knows clients by: they are not to be guessed."""
        self.checks = Checks(config, self.handles)
        self.ending = asyncio.Event()
        """Set once the process is told to end: what waits ends."""

    async def close(self) -> None:
        """Close all clients of the cluster, once what nobody has received is given back."""
        await self.checks.close()
        await self.returns.end()
        await self.settlement.end()
        await asyncio.gather(self.accesses.close(), self.policies.close())


@dataclass(frozen=True, slots=True)
class Call:
    """A call: who makes it, and until when it has to be answered."""

    gateway: Gateway
    access: ClusterAccess
    client_id: str
    language: str
    """As the client names it: ``PYTHON``, ``JAVA``, ``GO``; Node's says ``HTTP``."""
    deadline_ms: int | None
    """From when the call began; None: it has none, as calls of Go may."""
    began_s: float = field(default_factory=time.monotonic)
    namespace: str = ""
    """Of the topics that name none: Node's consumers tell theirs nowhere else."""

    @property
    def caller(self) -> Caller:
        """The client that calls."""
        return self.access, self.client_id

    def consumer(self, selected: str) -> str:
        """Return the client's name as a consumer: of what it gets in one second at this gateway, so selected.

        So what it acknowledges together shares requests; but after a group was moved back, or a leader
        died, a receipt of before settles nothing of what is delivered again, and what it keeps counts
        against no bound on the bytes of what it gets later.
        """
        period = int(time.monotonic() / CONSUMER_S)
        told = repr((id(self.access), period, self.client_id, selected)).encode()
        return f"rocketmq-{hmac.digest(self.gateway.names, told, 'sha256').hex()[:16]}"

    def topic_of(self, resource: Resource) -> str:
        """Return the cluster's name of a topic. Raises Refusal."""
        return topic_of(resource, self.namespace)

    @property
    def remaining_ms(self) -> int | None:
        """Rest of the client's deadline; None: it has none."""
        return None if self.deadline_ms is None else max(0, self.deadline_ms - self._passed_ms)

    @property
    def budget_s(self) -> float:
        """Rest of the time in which to answer a call that does not wait."""
        most_ms = self.gateway.config.limits.call_ms
        if self.deadline_ms is not None:
            most_ms = min(most_ms, max(self.deadline_ms - ANSWER_MS, self.deadline_ms // 2))
        return max(0, most_ms - self._passed_ms) / 1_000

    @property
    def _passed_ms(self) -> int:
        return int((time.monotonic() - self.began_s) * 1_000)

    async def write(self, write: Callable[[Answer], Awaitable[None]], parts: Iterable[Answer]) -> None:
        """Write parts of an answer, each of which the client has to take in time. Raises Unread."""
        await write_parts(write, parts, self.gateway.config.limits.call_ms / 1_000)


async def write_parts(
    write: Callable[[Answer], Awaitable[None]], parts: Iterable[Answer], each_s: float
) -> None:
    """Write parts of an answer, each of which has so long to be taken. Raises Unread.

    gRPC names no error that a write has where the connection is cut; it cancels the call, too, but later.
    """
    over, until_s = False, time.monotonic() + each_s

    async def writing() -> None:
        nonlocal until_s
        for part in parts:
            if over:
                break
            await write(part)
            until_s = time.monotonic() + each_s

    task = left_to_grpc(writing())
    try:
        while not task.done() and (left_s := until_s - time.monotonic()) > 0:
            await asyncio.wait({task}, timeout=left_s)
        if not task.done():
            raise Unread
        task.result()
    except Exception as error:
        raise Unread from error
    finally:
        over = True  # the part that is being written is the last


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
    deadline_ms = None if remaining_s is None else max(0, int(remaining_s * 1_000))
    language, namespace = headers.get("x-mq-language", "").upper(), headers.get("x-mq-namespace", "")
    return Call(gateway, access, client_id, language, deadline_ms, namespace=namespace)
