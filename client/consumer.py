"""A consumer: an async iterator over due messages, on a stream that finds its way back to the leader.

subscribe at the leader ──► deliveries into a buffer ──► async for
        ▲                          │ acks, nacks, credit: sent as they gathered in a turn of the loop
        └── the stream broke: list what is in hand, go on with what the new leader resumes
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

from tarry.client.delivery import View
from tarry.client.errors import Closed, TarryError
from tarry.client.hand import AckOutcome, Hand, Verdict
from tarry.client.message import Message, MessageBatch
from tarry.client.nodes import Nodes
from tarry.client.repeats import Repeats
from tarry.client.start import Start, group_start
from tarry.client.subscription import Subscription
from tarry.proto import tarry_consumer_pb2 as consumer_pb

REPEATS_WINDOW: Final = 65_536
CLOSE_MS: Final = 3_000
"""How long closing waits for the answers to the last acks."""


class Consumer:
    """Receives messages. Made by ``Client.consumer``; ``async with`` subscribes and unsubscribes.

    Belongs to one event loop; several tasks may iterate over it, each message
    goes to one of them.
    """

    def __init__(
        self,
        nodes: Nodes,
        topic: str,
        group: str,
        *,
        tags: Iterable[str] = (),
        credit: int = 1_000,
        lease_ms: int = 0,
        name: str = "",
        dedupe: bool = False,
        start: Start | None = None,
        broadcast: bool = False,
        in_hand_bytes_max: int = 0,
    ) -> None:
        if credit < 1:
            raise ValueError("credit must be at least 1")
        self.topic = topic
        self.group = group
        self.name = name or f"consumer-{uuid.uuid4().hex[:16]}"
        self.received = 0
        """Messages handed out or waiting to be."""
        self.duplicates_dropped = 0
        """Repeated deliveries kept back (``dedupe`` only)."""
        self._hand = Hand(credit)
        self._repeats = Repeats(REPEATS_WINDOW) if dedupe else None
        self._batches: deque[MessageBatch] = deque()
        self._messages: deque[Message] = deque()
        self._arrived = asyncio.Event()
        self._error: TarryError | None = None
        self._closed = False
        subscribe = consumer_pb.Subscribe(
            topic=topic,
            group=group,
            consumer=self.name,
            lease_ms=lease_ms,
            tags=tags,
            start=None if start is None else group_start(start),
            broadcast=broadcast,
            in_hand_bytes_max=in_hand_bytes_max,
        )
        self._subscription = Subscription(
            nodes, self._hand, subscribe, self._receive, self._resumed, self._fail
        )

    @property
    def in_hand(self) -> int:
        """Messages received and not yet acked or nacked."""
        return self._hand.in_hand

    @property
    def stale_acks(self) -> int:
        """Acks and nacks that came to STALE."""
        return self._hand.stale

    @property
    def lost(self) -> int:
        """Deliveries that could not be kept over a reconnect; the cluster delivers them again."""
        return self._hand.lost

    @property
    def reconnects(self) -> int:
        """Times that the stream was opened again."""
        return max(0, self._subscription.opened - 1)

    @property
    def lease_ms(self) -> int:
        """How long a message may stay in hand, as the cluster granted it."""
        return self._subscription.lease_ms

    async def start(self) -> None:
        """Subscribe. Raises Refused, or the last error at the client's deadline."""
        await self._subscription.start()

    async def close(self) -> None:
        """Unsubscribe: send the acks that are left, give back what is in hand, for others."""
        if not self._closed:
            self._closed = True
            self._arrived.set()
            await self._subscription.close(CLOSE_MS)

    async def __aenter__(self) -> Consumer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> Message:
        """Return the next message; ends after ``close``. Raises Refused when the cluster ends it."""
        while not self._messages:
            batch = await self.next_batch()
            if batch is None:
                raise StopAsyncIteration
            self._messages.extend(batch)  # looked up only now: a reconnect may have replaced it
        return self._messages.popleft()

    async def batches(self) -> AsyncIterator[MessageBatch]:
        """Yield messages in the batches in which they came: for bulk, with an ack a batch."""
        while (batch := await self.next_batch()) is not None:
            yield batch

    async def next_batch(self) -> MessageBatch | None:
        """Return the next batch; None after ``close``. Raises Refused when the cluster ends it."""
        while not self._closed:
            if self._batches:
                return self._batches.popleft()
            if self._error is not None:
                raise self._error
            self._arrived.clear()
            await self._arrived.wait()
        return None

    def holds(self, message: View) -> bool:
        """Return whether the message is in hand: not settled, and not lost in a reconnect."""
        return self._hand.holds(message.queue, message.offset)

    def settle_soon(self, verdict: Verdict, offset: int) -> None:
        """Give a verdict without waiting (what ``Message.ack_soon`` calls)."""
        self._note(verdict, (offset,))
        self._hand.settle(verdict, offset)
        self._subscription.wake()

    def settle(self, verdict: Verdict, offset: int) -> asyncio.Future[AckOutcome]:
        """Give a verdict and return its outcome to come (what ``Message.ack`` calls)."""
        self._check_open()
        waiter: asyncio.Future[AckOutcome] = asyncio.get_running_loop().create_future()
        self._note(verdict, (offset,))
        self._hand.settle(verdict, offset, waiter)
        self._subscription.wake()
        return waiter

    def settle_many_soon(self, verdict: Verdict, offsets: Sequence[int]) -> None:
        """Give one verdict on many (what ``MessageBatch.ack_soon`` calls)."""
        self._note(verdict, offsets)
        self._hand.settle_many(verdict, offsets)
        self._subscription.wake()

    def settle_many(self, verdict: Verdict, offsets: Sequence[int]) -> asyncio.Future[list[AckOutcome]]:
        """Give one verdict on many and return the outcomes to come (what ``MessageBatch.ack`` calls)."""
        self._check_open()
        waiter: asyncio.Future[list[AckOutcome]] = asyncio.get_running_loop().create_future()
        self._note(verdict, offsets)
        self._hand.settle_many(verdict, offsets, waiter)
        self._subscription.wake()
        return waiter

    def _receive(self, deliveries: consumer_pb.Deliveries) -> None:
        batch = MessageBatch(deliveries, int(time.time() * 1_000), self)
        if self._repeats is not None:
            self._drop_repeats(batch, self._repeats)
        else:
            self._hand.received(batch.queue, batch.offsets)
        if len(batch):
            self.received += len(batch)
            self._batches.append(batch)
            self._arrived.set()

    def _drop_repeats(self, batch: MessageBatch, repeats: Repeats) -> None:
        queue, offsets = batch.queue, batch.offsets
        held, acked = self._hand.among(queue, offsets), repeats.among(queue, offsets)
        self._hand.received(queue, offsets)
        if not held and not acked:
            return
        again = list(acked - held)
        self._hand.settle_many(batch.ack_verdict, again)
        self._subscription.wake()
        self.duplicates_dropped += len(held | acked)
        batch.keep([at for at, o in enumerate(offsets) if o not in held and o not in acked])

    def _resumed(self, lost: int) -> None:
        """The stream is open again: what was lost meanwhile and not handed out yet, must not be."""
        if lost:
            holds = self._hand.holds
            self._messages = deque(m for m in self._messages if holds(m.queue, m.offset))
            for batch in self._batches:
                batch.keep([at for at, offset in enumerate(batch.offsets) if holds(batch.queue, offset)])
            self._batches = deque(batch for batch in self._batches if len(batch))

    def _fail(self, error: TarryError) -> None:
        self._error = error
        self._arrived.set()

    def _note(self, verdict: Verdict, offsets: Sequence[int]) -> None:
        if self._repeats is not None and not verdict.nack and verdict.extend_ms is None:
            self._repeats.note(verdict.queue, offsets)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("consumer")
