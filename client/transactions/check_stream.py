"""A producer's stream of checks: opened at the leader, opened again wherever the leader is next."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from grpc import aio

from tarry.client.cluster.calls import pause_s
from tarry.client.cluster.nodes import Nodes
from tarry.client.errors import Refused, TarryError, Unavailable, UpgradeRefused, error_of_call
from tarry.client.transactions.half import Half, TransactionEnd
from tarry.proto import tarry_transaction_pb2 as pb
from tarry.proto.reasons import Reason

log = logging.getLogger("tarry.transactions")

CheckHandler: TypeAlias = Callable[[Half], Awaitable[TransactionEnd]]
EOF: Final[Any] = aio.EOF  # type: ignore[attr-defined]
ENDS: Final = {
    TransactionEnd.COMMIT: pb.TRANSACTION_END_COMMIT,
    TransactionEnd.ROLLBACK: pb.TRANSACTION_END_ROLLBACK,
    TransactionEnd.UNKNOWN: pb.TRANSACTION_END_UNSPECIFIED,
}
HANDLERS_MAX: Final = 16
"""Calls of the handler at once; more checks wait, and the cluster passes over a stream that does not read."""
REFUSED_S: Final = 5.0
"""Pause before a cluster that has refused the stream is asked again."""
SUBSCRIBE_S: Final = 2.0
"""Time limit for a node's answer to the subscribe."""


class CheckStream:
    """Answers the checks of a producer group, from ``start`` until ``close``."""

    def __init__(self, nodes: Nodes, producer_group: str, producer: str, handler: CheckHandler) -> None:
        self.opened = 0
        """Times that a node took the subscription."""
        self.error: TarryError | None = None
        """Why there are no checks now: the cluster has refused the stream, and is asked again by and by."""
        self._nodes, self._handler = nodes, handler
        self._subscribe = pb.ChecksSubscribe(producer_group=producer_group, producer=producer)
        self._writing = asyncio.Lock()  # gRPC takes one write at a time
        self._room = asyncio.Semaphore(HANDLERS_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._keeper: asyncio.Task[None] | None = None
        self._closing = False
        self._address, self._term, self._heard = "", 0, 0.0

    def start(self) -> None:
        """Open the stream, and keep it open. May be called again."""
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep_open())

    async def close(self) -> None:
        """Answer no more checks; a handler that runs is cancelled, and its check is asked of another."""
        self._closing = True
        running = [task for task in (self._keeper, *self._tasks) if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _keep_open(self) -> None:
        failures = 0
        while True:
            opened = self.opened
            try:
                await self._one_stream()
                error: TarryError = Unavailable(Reason.NOT_LEADER, f"{self._address} ended the stream")
            except aio.AioRpcError as failure:
                error = error_of_call(failure)
                self._nodes.learn(self._address, error)
            except TarryError as found_none:
                error = found_none
            except TimeoutError:
                self._nodes.avoidance.failed(self._address)
                error = Unavailable("DEADLINE_EXCEEDED", f"{self._address} does not answer")
            failures = 1 if self.opened > opened else failures + 1
            await asyncio.sleep(self._pause_s(error, failures))

    def _pause_s(self, error: TarryError, failures: int) -> float:
        """Return how long to wait behind a failure.

        What is refused may be allowed by and by, as where a token comes to one node after another; and
        without checks transactions end undecided.
        """
        if not isinstance(error, Refused) or isinstance(error, UpgradeRefused):  # the level may be raised
            return pause_s(error, failures, self._nodes.settings.pace_ms)
        if self.error is None or self.error.reason != error.reason:
            log.error("checks of transactions are refused, and asked for again: %s", error)
        self.error = error
        return REFUSED_S * random.uniform(0.8, 1.2)

    async def _one_stream(self) -> None:
        node = await self._nodes.pick(self._nodes.settings.deadline_ms)
        self._address = node.address
        stream = node.producer.Checks(metadata=self._nodes.metadata)
        watch: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(SUBSCRIBE_S):
                await stream.write(pb.ChecksRequest(subscribe=self._subscribe))
                response: Any = await stream.read()
            if response is EOF or response.WhichOneof("response") != "subscribed":
                raise Unavailable(Reason.NOT_LEADER, f"{node.address} did not take the subscription")
            self._term, self.opened, self.error = response.subscribed.term, self.opened + 1, None
            watch = asyncio.create_task(self._watch(stream))
            while (response := await stream.read()) is not EOF:
                self._heard = time.monotonic()
                await self._take(response, stream)
        except asyncio.CancelledError:
            if watch is not None and watch.done() and not self._closing:
                raise Unavailable("UNREACHABLE", f"{self._address} leads no more") from None
            raise
        finally:
            if watch is not None:
                watch.cancel()
            stream.cancel()

    async def _watch(self, stream: Any) -> None:
        """End the stream of a leader that is silent because it is one no more: paused, or cut off."""
        watch_s = self._nodes.settings.watch_ms / 1_000
        while True:
            await asyncio.sleep(watch_s)
            silent = time.monotonic() - self._heard >= watch_s
            if silent and await self._nodes.replaced(self._address, self._term):
                self._nodes.leader_lost(self._address)
                stream.cancel()
                return

    async def _take(self, response: pb.ChecksResponse, stream: Any) -> None:
        if response.HasField("check"):
            await self._room.acquire()
            task = asyncio.create_task(self._answer(Half.of(response.check), stream))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda _: self._room.release())
        elif response.HasField("refused"):
            refused = response.refused
            log.error("a check's answer was refused: %s %s", refused.transaction, refused.text)

    async def _answer(self, half: Half, stream: Any) -> None:
        """Ask the handler; an error of it counts as not known."""
        try:
            end = TransactionEnd(await self._handler(half))
        except Exception:
            log.exception("the check handler failed for transaction %s", half.name)
            return
        answer = pb.CheckAnswer(transaction=half.name, end=ENDS[end])
        with contextlib.suppress(aio.AioRpcError, asyncio.InvalidStateError, aio.UsageError):
            async with self._writing:
                await stream.write(pb.ChecksRequest(answer=answer))  # else the check comes again
