"""The blocking consumer with its messages, and the blocking puller."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, cast

from tarry.client.blocking.loop_thread import LoopThread
from tarry.client.blocking.twin import blocking
from tarry.client.consumers.buffer import Buffer, Offsets
from tarry.client.consumers.consumer import Consumer as AsyncConsumer
from tarry.client.consumers.message import Message as AsyncMessage
from tarry.client.consumers.message import MessageBatch as AsyncMessageBatch
from tarry.client.consumers.message import View
from tarry.client.consumers.puller import Puller as AsyncPuller
from tarry.client.consumers.within import within
from tarry.client.errors import Closed


class Message(View):
    """One delivered message."""

    __slots__ = ("_thread", "_twin")

    def __init__(self, message: AsyncMessage, thread: LoopThread) -> None:
        super().__init__(message._batch, message._position, message.offset)
        self._twin = message
        self._thread = thread

    ack = blocking(AsyncMessage.ack)
    nack = blocking(AsyncMessage.nack)
    extend = blocking(AsyncMessage.extend)

    def ack_soon(self) -> None:
        """Acknowledge without waiting: sent within ``Settings.ack_linger_ms``, again after a reconnect.

        ``on_ack_failed`` of the consumer is told where it did not count; else a warning is logged.
        """
        self._thread.soon(self._twin.ack_soon)

    def span(self) -> AbstractContextManager[Any]:
        """Return what a ``with`` processes the message in: a span, linked to the one that scheduled it.

        It is current inside, notes the verdict and an error that ends the ``with``, and is given as
        OpenTelemetry's Span; None where the client does not trace (``Settings.tracing``).
        """
        return self._twin.span()


class MessageBatch:
    """Messages of one queue that came together; iterating gives messages, ``columns`` their columns."""

    def __init__(self, batch: AsyncMessageBatch, thread: LoopThread) -> None:
        self.columns = self._twin = batch
        self._thread = thread

    def __len__(self) -> int:
        return len(self.columns)

    def __iter__(self) -> Iterator[Message]:
        return (Message(message, self._thread) for message in self.columns)

    @property
    def bodies(self) -> list[bytes]:
        """Bodies of all messages."""
        return self.columns.bodies

    @property
    def ids(self) -> list[str]:
        """Message ids; a retried message keeps its first id."""
        return self.columns.ids

    ack = blocking(AsyncMessageBatch.ack)
    nack = blocking(AsyncMessageBatch.nack)
    extend = blocking(AsyncMessageBatch.extend)

    def ack_soon(self) -> None:
        """Acknowledge all without waiting, like ``Message.ack_soon``."""
        self._thread.soon(self._twin.ack_soon)

    def span(self) -> AbstractContextManager[Any]:
        """Return what a ``with`` processes all in: one span, linked to each that scheduled some of them.

        Otherwise as ``Message.span``; baggage is not restored.
        """
        return self._twin.span()


class Puller:
    """One consumer of a group, by calls. Made by ``Client.puller``; threads may share it."""

    def __init__(self, puller: AsyncPuller, thread: LoopThread) -> None:
        self._twin = puller
        self._thread = thread

    @property
    def name(self) -> str:
        """By which the group knows who has received."""
        return self._twin.name

    receive = blocking(AsyncPuller.receive)
    ack = blocking(AsyncPuller.ack)
    nack = blocking(AsyncPuller.nack)
    extend = blocking(AsyncPuller.extend)


class Consumer:
    """Receives messages. Made by ``Client.consumer``; ``with`` subscribes and unsubscribes."""

    def __init__(self, consumer: AsyncConsumer, thread: LoopThread) -> None:
        self._twin = consumer
        self._thread = thread
        self._ready = _Ready()
        consumer.waiting.append(self._ready)
        self._message: type[Message] = Message
        self._batch: type[MessageBatch] = MessageBatch
        if consumer.spans is not None:
            self._message, self._batch = _TracedMessage, _TracedBatch

    @property
    def state(self) -> AsyncConsumer:
        """The async twin, for its counters: received, in_hand, lost, reconnects, stale_acks, …"""
        return self._twin

    start = blocking(AsyncConsumer.start)

    def close(self) -> None:
        """Unsubscribe: send the acks that are left, give back what is in hand, for others."""
        with suppress(Closed):  # the client has been closed, and with it this
            self._thread.run(self._close())

    def __enter__(self) -> Consumer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Message]:
        """Yield messages until the consumer is closed. Raises Refused when the cluster ends it."""
        while (message := self.receive()) is not None:
            yield message

    def receive(self, timeout_ms: int | None = None) -> Message | None:
        """Return the next message; None when none came in time, or the consumer is closed."""
        self._thread.check_process()  # what waits here is the parent's, which hands it out itself
        while not self._twin.closed:
            message = self._ready.message(time.monotonic() - self._twin.lease_ms / 1_000)
            if self._ready.expired:
                self._thread.soon(partial(self._twin.forget_expired, self._ready))
            if message is None:
                if not self._thread.run(self._fetch(timeout_ms)):
                    return None
            elif self._twin.holds(message):  # not lost in a reconnect since it came
                return self._message(message, self._thread)
        return None

    def batches(self) -> Iterator[MessageBatch]:
        """Yield messages in the batches in which they came: for bulk, with an ack a batch."""
        while (batch := self._thread.run(self._next(None))) is not None:
            yield self._batch(batch, self._thread)

    async def _next(self, timeout_ms: int | None) -> AsyncMessageBatch | None:
        return await within(self._twin.next_batch(), timeout_ms)

    async def _fetch(self, timeout_ms: int | None) -> bool:
        batch = await self._next(timeout_ms)
        # A batch of another incarnation has come just before what waits was thrown away.
        if batch is not None and batch.incarnation == self._twin._unsettled.incarnation:
            self._ready.put(batch)
        return batch is not None

    async def _close(self) -> None:
        self._thread.drain()
        await self._twin.close()


class _TracedMessage(Message):
    """Message of a client that traces."""

    __slots__ = ()

    def ack_soon(self) -> None:
        _note_ack(self._twin)
        super().ack_soon()


class _TracedBatch(MessageBatch):
    """Batch of a client that traces."""

    def __iter__(self) -> Iterator[Message]:
        return (_TracedMessage(message, self._thread) for message in self.columns)

    def ack_soon(self) -> None:
        _note_ack(self._twin)
        super().ack_soon()


def _note_ack(twin: AsyncMessage | AsyncMessageBatch) -> None:
    """Note it now in the span that is open: it may be over when the loop's thread comes to it."""
    from tarry.client.consumers.process_spans import Recorder  # loads opentelemetry

    if isinstance(twin._settler, Recorder):
        batch = twin.batch if isinstance(twin, AsyncMessage) else twin
        twin._settler.processing.settled(batch.ack_verdict)


class _Ready(Buffer):
    """Messages fetched from the loop's thread, which goes on extending their leases; for any thread.

    Without a lock, for a signal's handler may run in whoever holds it, and wait for the loop, which would
    wait for the lock. A deque's own calls are whole: each message is popped once.
    """

    def put(self, batch: AsyncMessageBatch) -> None:
        self._messages.extend(batch)

    def message(self, oldest_s: float) -> AsyncMessage | None:
        with suppress(IndexError):
            while True:
                message = self._messages.popleft()
                if cast(AsyncMessageBatch, message.batch).leased_s >= oldest_s:
                    return message
                self.expired.append((message.queue, [message.offset]))
        return None

    def waiting(self) -> list[Offsets]:
        return [(batch.queue, offsets) for batch, offsets in self._by_batch()]

    def renew(self, before_s: float, now_s: float) -> list[Offsets]:
        renewed = []
        for batch, offsets in self._by_batch():
            if batch.leased_s < before_s:
                batch.leased_s = now_s
                renewed.append((batch.queue, offsets))
        return renewed

    def _by_batch(self) -> list[tuple[AsyncMessageBatch, list[int]]]:
        messages = list(self._messages)
        return [
            (batch, [message.offset for message in some])
            for batch, some in groupby(messages, attrgetter("batch"))
        ]
