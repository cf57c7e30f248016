"""Unary calls with retries: another node, after a pause, until the deadline."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Final, Protocol, TypeAlias, TypeVar

import grpc
from grpc import aio
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from tarry.client.cluster.nodes import Node, Nodes
from tarry.client.errors import OutcomeUnknown, Overloaded, TarryError, Unavailable, error_of_call
from tarry.proto.reasons import Reason

REDIRECTS_MAX: Final = 3
"""Redirects followed without a pause: two nodes may name each other during an election."""
PAUSE_MS_MAX: Final = 1_000
LAST_ATTEMPT_MS: Final = 100
"""An attempt with less time left is not begun: it would only turn "surely not done" into "who knows"."""

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
AnswerT_co = TypeVar("AnswerT_co", covariant=True)


class Answering(Awaitable[AnswerT_co], Protocol[AnswerT_co]):
    """A request under way: a gRPC call, or the future of one on a stream, which raises TarryError."""

    def done(self) -> bool: ...
    def cancel(self) -> bool: ...


Method: TypeAlias = Callable[..., Answering[ResponseT]]


def pause_s(error: BaseException | None, attempt: int, pace_ms: int) -> float:
    """Return how long to wait after the attempt (from 1) that ended with this error.

    None for a redirect; the server's own figure and up to half more where it
    gave one; else full jitter up to pace * 2**attempt (AWS Architecture Blog,
    "Exponential Backoff and Jitter").
    """
    if isinstance(error, TarryError):
        if error.facts.get("leader") and attempt <= REDIRECTS_MAX:
            return 0.0
        if error.retry_ms is not None:
            return error.retry_ms * random.uniform(1.0, 1.5) / 1_000
    return random.uniform(0, min(PAUSE_MS_MAX, pace_ms * 2 ** min(attempt, 10))) / 1_000


async def answers(call: aio.UnaryStreamCall[RequestT, ResponseT]) -> AsyncGenerator[ResponseT]:
    """Yield the answers of a call to one node; where the caller goes on without the rest, the call ends.

    Raises TarryError. Left to itself, an unfinished call of grpc.aio lasts until it is collected as garbage,
    and a node counts it until then.
    """
    try:
        async for answer in call:
            yield answer
    except aio.AioRpcError as failure:
        raise error_of_call(failure) from failure
    finally:
        call.cancel()


class Calls:
    """Calls any unary method of the cluster."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._settings = nodes.settings

    async def call(
        self,
        method: Callable[[Node], Method[ResponseT]],
        request: object,
        *,
        deadline_ms: int | None = None,
        changes: bool = True,
        once: bool = False,
        attempt_ms: int | None = None,
    ) -> ResponseT:
        """Return the answer. ``method`` names it on a node's stubs; ``attempt_ms``: for one that takes long.

        Retries are safe only for requests that may be repeated; ``once`` never
        repeats one that may have been done. Raises Refused at once; at the
        deadline Unavailable or Overloaded if surely nothing was done, else
        OutcomeUnknown (never for a request that changes nothing).
        """
        deadline = time.monotonic() + (deadline_ms or self._settings.deadline_ms) / 1_000
        attempt = partial(self._attempt, method, request, deadline, attempt_ms, watched=not once)
        try:
            return await attempt()  # most calls need one; the retries would cost it 60 us of CPU time
        except TarryError as error:
            return await self._retry(attempt, error, deadline, changes=changes, once=once)

    async def _retry(
        self,
        attempt: Callable[[], Awaitable[ResponseT]],
        first: TarryError,
        deadline: float,
        *,
        changes: bool,
        once: bool,
    ) -> ResponseT:
        """Repeat an attempt that ended with this error, until the deadline."""
        unknown: OutcomeUnknown | None = None
        retrying = AsyncRetrying(
            retry=retry_if_exception(lambda error: _worth_retrying(error, once)),
            wait=self._pause_s,
            stop=lambda state: time.monotonic() + state.upcoming_sleep + LAST_ATTEMPT_MS / 1_000 >= deadline,
            reraise=True,
        )
        try:
            async for state in retrying:
                with state:
                    try:
                        if state.retry_state.attempt_number == 1:
                            raise first
                        return await attempt()
                    except OutcomeUnknown as error:
                        unknown = error
                        raise
        except TarryError as error:
            raise _final(error, unknown, changes) from error
        raise AssertionError("a retry ends with an answer or an error")

    async def stream(
        self,
        method: Callable[[Node], aio.UnaryStreamMultiCallable[RequestT, ResponseT]],
        request: RequestT,
    ) -> AsyncIterator[ResponseT]:
        """Yield the answers of a call that only the leader takes; retried until the first answer is there."""
        deadline = time.monotonic() + self._settings.deadline_ms / 1_000
        attempt = 0
        while True:
            attempt += 1
            node = await self._nodes.pick(self._settings.deadline_ms)
            begun = False
            try:
                async for response in method(node)(request, metadata=self._nodes.metadata):
                    begun = True
                    yield response
                return
            except grpc.aio.AioRpcError as failure:
                error = error_of_call(failure)
                self._nodes.learn(node.address, error)
                pause = pause_s(error, attempt, self._settings.pace_ms)
                if begun and isinstance(error, Unavailable):
                    raise OutcomeUnknown(error.reason, error.text) from failure
                if begun or not _worth_retrying(error, once=True) or time.monotonic() + pause > deadline:
                    raise error from failure
            await asyncio.sleep(pause)

    async def _attempt(
        self,
        method: Callable[[Node], Method[ResponseT]],
        request: object,
        deadline: float,
        attempt_ms: int | None,
        *,
        watched: bool,
    ) -> ResponseT:
        nodes = self._nodes
        # Half of what is left is for the search, so that a node may still say why there is no leader.
        node = await nodes.pick(max(1.0, (deadline - time.monotonic()) * 500))
        left_s = deadline - time.monotonic()
        timeout_s = max(0.001, min((attempt_ms or self._settings.attempt_ms) / 1_000, left_s))
        call = method(node)(request, timeout=timeout_s, metadata=nodes.metadata)
        watch = _Watch(nodes, call, node.address) if watched else None
        try:
            response = await call
        except grpc.aio.AioRpcError as failure:
            error = error_of_call(failure)
            nodes.learn(node.address, error)
            raise error from failure
        except TarryError as error:  # of a request on a stream
            nodes.learn(node.address, error)
            raise
        except asyncio.CancelledError:
            if watch is None or not watch.gave_up:
                raise
            raise OutcomeUnknown("UNAVAILABLE", f"{node.address} leads no more") from None
        finally:
            if watch is not None:
                watch.stop()
        nodes.avoidance.answered(node.address)
        return response

    def _pause_s(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        return pause_s(error, state.attempt_number, self._settings.pace_ms)


class _Watch:
    """Gives up a call that takes long because its node leads no more: stopped, or cut off."""

    __slots__ = ("_address", "_call", "_nodes", "_task", "_term", "_timer", "gave_up")

    def __init__(self, nodes: Nodes, call: Answering[object], address: str) -> None:
        self.gave_up = False
        self._nodes = nodes
        self._call = call
        self._address = address
        self._term = nodes.term
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(nodes.settings.watch_ms / 1_000, self._start)

    def stop(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _start(self) -> None:
        self._task = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while True:
            if await self._nodes.replaced(self._address, self._term):
                break
            await asyncio.sleep(self._nodes.settings.watch_ms / 1_000)
        self._nodes.leader_lost(self._address)
        self.gave_up = not self._call.done()
        self._call.cancel()


def _worth_retrying(error: BaseException, once: bool) -> bool:
    if isinstance(error, OutcomeUnknown):
        return not once and error.reason != Reason.SEQUENCE_TOO_OLD
    return isinstance(error, Unavailable | Overloaded)


def _final(error: TarryError, unknown: OutcomeUnknown | None, changes: bool) -> TarryError:
    # One attempt that may have been done outweighs a later one that surely was not.
    if unknown is None:
        return error
    if changes:
        return unknown if isinstance(error, OutcomeUnknown) else OutcomeUnknown(error.reason, error.text)
    return Unavailable(error.reason, error.text) if isinstance(error, OutcomeUnknown) else error
