"""One consumer's stream: opened at the leader, opened again wherever the leader is next."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import grpc
from grpc import aio

from tarry.client.cluster.calls import pause_s
from tarry.client.cluster.nodes import Nodes
from tarry.client.consumers.unsettled import Unsettled
from tarry.client.errors import (
    Closed,
    OutcomeUnknown,
    Overloaded,
    Refused,
    TarryError,
    Unavailable,
    error_of_call,
)
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto.reasons import Reason

Stream = aio.StreamStreamCall[consumer_pb.ConsumeRequest, consumer_pb.ConsumeResponse]
EOF: Final[Any] = aio.EOF  # type: ignore[attr-defined]
SUBSCRIBE_MS: Final = 2_000
"""Time limit for a node's answer to Subscribe."""
SUBSCRIBE_SEVERAL_MS: Final = 10_000
"""The same of several topics: the group of each may have to be made."""


class Subscription:
    """One stream, kept open until closed. Sends what ``unsettled`` has to send; calls back on receipt."""

    def __init__(
        self,
        nodes: Nodes,
        unsettled: Unsettled,
        subscribe: consumer_pb.Subscribe,
        on_deliveries: Callable[[consumer_pb.Deliveries], None],
        on_failed: Callable[[BaseException], None],
        on_shorter_lease: Callable[[], None] = lambda: None,
        on_incarnation: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Take ``on_incarnation``: told of another incarnation, where offsets are of other messages."""
        self.opened = 0
        """Times that a node took the subscription."""
        self.lease_ms = 0
        self._nodes = nodes
        self._settings = nodes.settings
        self._unsettled = unsettled
        self._subscribe = subscribe
        self._on_deliveries = on_deliveries
        self._on_failed = on_failed
        self._on_shorter_lease = on_shorter_lease
        self._on_incarnation = on_incarnation
        self._subscribe_ms = SUBSCRIBE_SEVERAL_MS if subscribe.topics else SUBSCRIBE_MS
        self._stream: Stream | None = None
        self._address = ""
        self._term = 0
        self._open = False
        self._closing = False
        self._heard = 0.0
        self._to_write = asyncio.Event()
        # with a limit in bytes the cluster may wait for any ack
        self._linger_s = 0 if subscribe.in_hand_bytes_max else nodes.settings.ack_linger_ms / 1_000
        self._lingering: asyncio.TimerHandle | None = None
        self._settled = asyncio.Event()
        self._first: asyncio.Future[None] | None = None
        self._last_error: TarryError | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Open the stream. Raises Refused at once, the last error at the deadline."""
        self._first = asyncio.get_running_loop().create_future()
        self._tasks = [
            followed(self._keep_open(), self._died),
            followed(self._write(), self._died),
            followed(self._watch(), self._died),
        ]
        try:
            async with asyncio.timeout(self._settings.deadline_ms / 1_000):
                await asyncio.shield(self._first)
        except TimeoutError:
            await self.close(0)
            error = self._last_error or Unavailable(Reason.NO_LEADER, "no node took the subscription in time")
            raise error from None
        except (TarryError, asyncio.CancelledError):
            await self.close(0)
            raise

    def wake(self) -> None:
        """Send what ``unsettled`` has to send, in the loop's next turn."""
        self._to_write.set()

    def wake_soon(self) -> None:
        """Send it with what comes within ``ack_linger_ms``; at once where the cluster waits for it."""
        if not self._linger_s or self._unsettled.owes_credit:
            self.wake()
        elif self._lingering is None:
            linger_s = min(self._linger_s, self.lease_ms / 4_000)
            self._lingering = asyncio.get_running_loop().call_later(linger_s, self.wake)

    async def close(self, within_ms: int) -> None:
        """Wait for the answers to what was sent, end the stream, stop."""
        self.wake()
        if self._first is not None and not self._first.done():
            self._first.set_exception(Closed("consumer"))
            self._first.exception()  # nobody may wait for it
        try:
            await self._end_orderly(time.monotonic() + within_ms / 1_000)
        finally:
            self._closing = True
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._unsettled.abandon()

    async def _end_orderly(self, deadline: float) -> None:
        while (
            self._unsettled.has_unanswered
            and self._tasks
            and not self._tasks[0].done()
            and time.monotonic() < deadline
        ):
            self._settled.clear()
            # not wait_for: before Python 3.12 it loses a cancellation that comes with what it waits for
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.001, deadline - time.monotonic())):
                    await self._settled.wait()
        self._closing = True
        if self._stream is not None and self._open and self._tasks:
            # The server sees an orderly end, so that it gives what is in hand to others at once.
            self._tasks.append(asyncio.create_task(_end(self._stream)))
            await asyncio.wait(self._tasks[-1:], timeout=1)
            await asyncio.wait(self._tasks[:1], timeout=max(0.1, deadline - time.monotonic()))

    async def _keep_open(self) -> None:
        failures = 0
        while not self._closing:
            opened = self.opened
            try:
                await self._one_stream()
                return
            except aio.AioRpcError as failure:
                error = error_of_call(failure)
                self._nodes.learn(self._address, error)
            except TarryError as found_none:
                error = found_none
            finally:
                self._open = False
            self._last_error = error
            if isinstance(error, Refused):
                self._give_up(error)
                return
            failures = 1 if self.opened > opened else failures + 1
            if failures > 1 or isinstance(error, Overloaded):
                await asyncio.sleep(pause_s(error, failures, self._settings.pace_ms))

    def _died(self, error: BaseException) -> None:
        """End the stream, which without one of its tasks would be open and dead, and report the error."""
        for task in self._tasks:
            task.cancel()
        self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        self._unsettled.abandon()
        self._settled.set()
        if self._first is not None and not self._first.done():
            self._first.set_exception(error)
        else:
            self._on_failed(error)

    async def _one_stream(self) -> None:
        node = await self._nodes.pick(self._settings.deadline_ms)
        self._address = node.address
        stream: Stream = node.consumer.Consume(metadata=self._nodes.metadata)
        self._stream = stream
        try:
            subscribe = consumer_pb.Subscribe()
            subscribe.CopyFrom(self._subscribe)
            subscribe.credit = self._unsettled.credit_to_start()
            subscribe.holding.extend(self._unsettled.holding())
            async with asyncio.timeout(self._subscribe_ms / 1_000):
                await self._begin(stream, subscribe)
            response: Any
            while (response := await stream.read()) is not EOF:
                self._heard = time.monotonic()
                self._take(response)
        except TimeoutError as silent:
            self._nodes.avoidance.failed(self._address)
            raise OutcomeUnknown("DEADLINE_EXCEEDED", f"{self._address} does not answer") from silent
        except asyncio.CancelledError:
            if stream.cancelled() and not self._closing:  # by _watch, not by close
                raise Unavailable("UNREACHABLE", f"{self._address} leads no more") from None
            raise
        finally:
            stream.cancel()
        if not self._closing:
            raise Unavailable(Reason.NOT_LEADER, f"{self._address} ended the stream")

    async def _begin(self, stream: Stream, subscribe: consumer_pb.Subscribe) -> None:
        await stream.write(consumer_pb.ConsumeRequest(subscribe=subscribe))
        response: Any = await stream.read()
        if response is EOF or response.WhichOneof("response") != "subscribed":
            raise Unavailable(Reason.NOT_LEADER, f"{self._address} did not take the subscription")
        subscribed = response.subscribed
        self._heard = time.monotonic()
        self._term = subscribed.term
        self._take_lease(subscribed.lease_ms)
        self._begin_where_it_was()
        resumed = {holding.queue: frozenset(holding.offset) for holding in subscribed.resumed}
        self._unsettled.subscribed(resumed)
        if subscribed.incarnation != self._subscribe.incarnation:
            self._on_incarnation(subscribed.incarnation)
        self._subscribe.incarnation = subscribed.incarnation
        self.opened += 1
        self._open = True
        self._to_write.set()
        if self._first is not None and not self._first.done():
            self._first.set_result(None)

    def _take(self, response: consumer_pb.ConsumeResponse) -> None:
        kind = response.WhichOneof("response")
        if kind == "deliveries":
            if response.deliveries.ordered:
                self._linger_s = 0
            self._on_deliveries(response.deliveries)
        elif kind == "acked":
            self._unsettled.answered(response.acked)
            if not self._unsettled.has_unanswered:
                self._settled.set()
        elif kind == "subscribed":
            self._take_lease(response.subscribed.lease_ms)
        if self._unsettled.owes_credit:
            self.wake()

    def _take_lease(self, lease_ms: int) -> None:
        shorter, self.lease_ms = lease_ms < self.lease_ms, lease_ms
        if shorter:
            self._on_shorter_lease()

    def _begin_where_it_was(self) -> None:
        """Have topics that come while no stream is open begin where a stream would have had them."""
        subscribe = self._subscribe
        latest = subscribe.start.at == consumer_pb.START_AT_LATEST
        if subscribe.broadcast and subscribe.start.at == consumer_pb.START_AT_UNSPECIFIED:
            latest = True
        if subscribe.topics and latest:
            subscribe.start.at = consumer_pb.START_AT_TIME
            subscribe.start.time_ms = int(time.time() * 1_000)

    async def _write(self) -> None:
        while True:
            await self._to_write.wait()
            self._to_write.clear()
            if self._lingering is not None:
                self._lingering.cancel()
                self._lingering = None
            stream = self._stream
            if not self._open or stream is None:
                continue
            for request in self._unsettled.outgoing():
                try:
                    await stream.write(request)
                except (aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
                    break  # the reader learns why; what was not sent goes on the next stream
                except asyncio.CancelledError:
                    if self._closing or not stream.cancelled():
                        raise
                    break  # the call was cancelled, by _watch, and not this task: gRPC tells them alike

    async def _watch(self) -> None:
        """Notice a leader that is silent because it is one no more: paused, or cut off."""
        watch_s = self._settings.watch_ms / 1_000
        while True:
            await asyncio.sleep(watch_s)
            if self._open and time.monotonic() - self._heard >= watch_s:
                stream, address = self._stream, self._address
                replaced = await self._nodes.replaced(address, self._term)
                if replaced and self._open and stream is not None and stream is self._stream:
                    self._nodes.leader_lost(address)
                    stream.cancel()


def followed(work: Coroutine[Any, Any, None], on_died: Callable[[BaseException], None]) -> asyncio.Task[None]:
    """Return a task that reports its own failure, because nothing awaits it."""

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            on_died(error)

    task = asyncio.create_task(work)
    task.add_done_callback(ended)
    return task


async def _end(stream: Stream) -> None:
    with contextlib.suppress(aio.AioRpcError, asyncio.InvalidStateError):
        await stream.done_writing()
