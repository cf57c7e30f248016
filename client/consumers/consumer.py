"""A consumer: an async iterator over due messages, on a stream that is opened again at each new leader.

subscribe at the leader ──► deliveries into a buffer ──► async for
        ▲                          │ acks, nacks, credit: sent as they gathered in a turn of the loop
        └── the stream broke: list what is in hand, go on with what the new leader resumes
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from tarry.client.cluster.nodes import Nodes
from tarry.client.consumers.buffer import Buffer
from tarry.client.consumers.lapses import MARGIN, Lapses
from tarry.client.consumers.message import Message, MessageBatch, Spans, View
from tarry.client.consumers.subscription import Subscription, followed
from tarry.client.consumers.topic_names import named
from tarry.client.consumers.unsettled import AckOutcome, FailedAcks, Unsettled, Verdict
from tarry.client.errors import Closed, InvalidSubscription
from tarry.client.integers import UINT64_MAX, whole
from tarry.client.receipts import receipts
from tarry.client.records import check_texts
from tarry.client.start_position import Start, group_start
from tarry.client.tracing import tracing_of
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto.reasons import Reason

REPEATS_WINDOW: Final = 65_536
CLOSE_MS: Final = 3_000
"""Time for which closing waits for the answers to the last acks."""

T = TypeVar("T")
log = logging.getLogger(__name__)


class Repeats:
    """The last ``window`` to 2 * ``window`` offsets a queue: two sets, of which the older is dropped."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._new: dict[int, set[int]] = {}
        self._old: dict[int, set[int]] = {}

    def note(self, queue: int, offsets: Iterable[int]) -> None:
        """Remember the offsets."""
        new = self._new.setdefault(queue, set())
        new.update(offsets)
        if len(new) >= self._window:
            self._old[queue], self._new[queue] = new, set()

    def among(self, queue: int, offsets: Sequence[int]) -> set[int]:
        """Return which of the offsets are remembered."""
        return self._new.get(queue, set()).intersection(offsets) | self._old.get(queue, set()).intersection(
            offsets
        )


class Consumer:
    """Iterator over messages. Made by ``Client.consumer``; ``async with`` subscribes and unsubscribes.

    Belongs to one event loop; several tasks may iterate over it, each message
    goes to one of them.
    """

    def __init__(
        self,
        nodes: Nodes,
        topic: str,
        group: str,
        *,
        topics: Iterable[str] = (),
        tags: Iterable[str] = (),
        filter: str = "",  # noqa: A002 - its name to who calls
        credit: int = 1_000,
        lease_ms: int = 0,
        name: str = "",
        dedupe: bool = False,
        start: Start | None = None,
        broadcast: bool = False,
        temporary: bool | None = None,
        in_hand_bytes_max: int = 0,
        on_ack_failed: Callable[[FailedAcks], None] | None = None,
        on_closed: Callable[[Consumer], None] = lambda _: None,
    ) -> None:
        credit = whole("credit", credit, InvalidSubscription, Reason.CREDIT_INVALID, lowest=1)
        lease_ms = whole("lease_ms", lease_ms, InvalidSubscription, Reason.LEASE_INVALID)
        bytes_max = whole(
            "in_hand_bytes_max", in_hand_bytes_max, InvalidSubscription, Reason.CREDIT_INVALID, UINT64_MAX
        )
        check_texts(tags=tags)
        names = named(topic, topics)
        self.topic = names.get("topic", "")
        """Its one topic; empty: it has several, and each message says of which it is."""
        self.topics = tuple(names.get("topics", ()))
        self._topic_of: dict[int, str] = {}
        """Topics of the queues of which it was given something, where it has several."""
        self.group = group
        self.name = name or f"consumer-{uuid.uuid4().hex[:16]}"
        self.received = 0
        """Messages handed out or waiting to be."""
        self.duplicates_dropped = 0
        """Repeated deliveries kept back (``dedupe`` only)."""
        self._on_closed = on_closed
        self._unsettled = Unsettled(credit)
        self._receipts = receipts(nodes.settings, f"consumer:{self.name}", group)
        self.spans: Spans | None = None
        """None where the client does not trace."""
        if (tracing := tracing_of(nodes.settings.tracing)) is not None:
            from tarry.client.consumers.process_spans import ProcessSpans  # loads opentelemetry

            self.spans = ProcessSpans(tracing, group, self.name)
        self._unsettled.on_acked = self._receipts.acked if self._receipts is not None else None
        self._unsettled.on_failed = self._acks_failed
        self._on_ack_failed = on_ack_failed or _log_failed
        self._failed: dict[tuple[str, int, AckOutcome], list[int]] = {}
        self._repeats = Repeats(REPEATS_WINDOW) if dedupe else None
        self._buffer = Buffer()
        self.waiting = [self._buffer]
        """Where messages wait to be handed out: their leases are extended."""
        self._lapses = Lapses()
        self._lost_seen = 0
        self._renewal: asyncio.Task[None] | None = None
        self._arrived = asyncio.Event()
        self._error: BaseException | None = None
        self._closed = False
        self._ended = asyncio.Event()
        subscribe = consumer_pb.Subscribe(
            **names,
            group=group,
            consumer=self.name,
            lease_ms=lease_ms,
            tags=tags,
            filter=filter,
            start=None if start is None else group_start(start),
            broadcast=broadcast,
            temporary=(broadcast and not name) if temporary is None else temporary,
            in_hand_bytes_max=bytes_max,
        )
        self._shorter = asyncio.Event()
        self._subscription = Subscription(
            nodes,
            self._unsettled,
            subscribe,
            self._receive,
            self._fail,
            self._shorter.set,
            self._begin_anew,
        )

    @property
    def in_hand(self) -> int:
        """Messages received and not yet acked or nacked."""
        return self._unsettled.in_hand

    @property
    def stale_acks(self) -> int:
        """Acks and nacks that came to STALE."""
        return self._unsettled.stale

    @property
    def lost(self) -> int:
        """Deliveries lost while unsettled: not resumed, or their lease was over. They come again."""
        return self._unsettled.lost

    @property
    def reconnects(self) -> int:
        """Times that the stream was opened again."""
        return max(0, self._subscription.opened - 1)

    @property
    def lease_ms(self) -> int:
        """Lease of a message, as the cluster granted it."""
        return self._subscription.lease_ms

    @property
    def closed(self) -> bool:
        """True after ``close``: what still waits belongs to others."""
        return self._closed

    async def start(self) -> None:
        """Subscribe. Raises Refused, or the last error at the client's deadline."""
        try:
            await self._subscription.start()
        except BaseException:
            self._on_closed(self)
            raise
        self._renewal = followed(self._renew(), self._fail)

    async def close(self) -> None:
        """Unsubscribe: send the acks that are left, give back what is in hand, for others."""
        if self._closed:
            await self._ended.wait()  # the client must not take the connections from who is closing
            return
        self._closed = True
        self._arrived.set()
        if self._renewal is not None:
            self._renewal.cancel()
        try:
            await self._subscription.close(CLOSE_MS)
            if self._receipts is not None:
                await self._receipts.close()
            self._on_closed(self)
        finally:
            self._ended.set()

    async def __aenter__(self) -> Consumer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> Message:
        """Return the next message; ends after ``close``. Raises Refused when the cluster ends it."""
        if self._unsettled.lost == self._lost_seen and not self._closed:  # the short way, twice as fast
            message = self._buffer.message(time.monotonic() - self._subscription.lease_ms / 1_000)
            if message is not None:
                return self._receipted(message)
        message = await self._take(self._buffer.message)
        if message is None:
            raise StopAsyncIteration
        return self._receipted(message)

    def _receipted(self, message: Message) -> Message:
        if self._receipts is not None:
            batch = message.batch
            self._receipts.received(batch.topic, batch.queue, batch.stamp.term, (message.place,))
        return message

    async def batches(self) -> AsyncIterator[MessageBatch]:
        """Yield messages in the batches in which they came: for bulk, with an ack a batch."""
        while (batch := await self.next_batch()) is not None:
            yield batch

    async def next_batch(self) -> MessageBatch | None:
        """Return the next batch; None after ``close``. Raises Refused when the cluster ends it."""
        batch = await self._take(self._buffer.batch)
        if self._receipts is not None and batch is not None:
            self._receipts.received(batch.topic, batch.queue, batch.stamp.term, batch.places)
        return batch

    def holds(self, message: View) -> bool:
        """Return whether the message is in hand: not settled, and not lost."""
        if message.batch.incarnation != self._unsettled.incarnation:
            return False
        return self._unsettled.holds(message.queue, message.offset)

    def settle_soon(self, verdict: Verdict, offset: int) -> None:
        """Give a verdict without waiting; for ``Message.ack_soon``."""
        self._note(verdict, (offset,))
        self._unsettled.settle(verdict, offset)
        self._subscription.wake_soon()

    def settle(self, verdict: Verdict, offset: int) -> asyncio.Future[AckOutcome]:
        """Give a verdict and return its outcome to come; for ``Message.ack``."""
        self._check_open()
        waiter: asyncio.Future[AckOutcome] = asyncio.get_running_loop().create_future()
        self._note(verdict, (offset,))
        self._unsettled.settle(verdict, offset, waiter)
        self._subscription.wake()
        return waiter

    def settle_many_soon(self, verdict: Verdict, offsets: Sequence[int]) -> None:
        """Give one verdict on many without waiting; for ``MessageBatch.ack_soon``."""
        self._note(verdict, offsets)
        self._unsettled.settle_many(verdict, offsets)
        self._subscription.wake_soon()

    def settle_many(self, verdict: Verdict, offsets: Sequence[int]) -> asyncio.Future[list[AckOutcome]]:
        """Give one verdict on many and return the outcomes to come; for ``MessageBatch.ack``."""
        self._check_open()
        waiter: asyncio.Future[list[AckOutcome]] = asyncio.get_running_loop().create_future()
        self._note(verdict, offsets)
        self._unsettled.settle_many(verdict, offsets, waiter)
        self._subscription.wake()
        return waiter

    def _receive(self, deliveries: consumer_pb.Deliveries) -> None:
        received_ms, incarnation = int(time.time() * 1_000), self._unsettled.incarnation
        batch = MessageBatch(deliveries, received_ms, incarnation, self, time.monotonic(), self.spans)
        if self._repeats is not None:
            self._drop_repeats(batch, self._repeats)
        else:
            self._unsettled.received(batch.queue, batch.offsets)
        if self.topics:
            self._topic_of[batch.queue] = batch.topic
        if len(batch):
            self.received += len(batch)
            self._buffer.put(batch)
            self._arrived.set()

    def _begin_anew(self, incarnation: int) -> None:
        """Forget what another incarnation of the cluster has delivered: its offsets are of other messages."""
        self._unsettled.begin_anew(incarnation)
        self._topic_of.clear()
        for buffer in self.waiting:
            buffer.clear()
        if self._repeats is not None:
            self._repeats = Repeats(REPEATS_WINDOW)

    def _drop_repeats(self, batch: MessageBatch, repeats: Repeats) -> None:
        queue, offsets = batch.queue, batch.offsets
        held, acked = self._unsettled.among(queue, offsets), repeats.among(queue, offsets)
        self._unsettled.received(queue, offsets)
        if not held and not acked:
            return
        again = list(acked - held)
        unread = asyncio.get_running_loop().create_future()  # nobody is told of what becomes of these acks
        self._unsettled.settle_many(batch.ack_verdict, again, unread)
        self._subscription.wake()
        self.duplicates_dropped += len(held | acked)
        batch.keep([at for at, o in enumerate(offsets) if o not in held and o not in acked])

    async def _take(self, take: Callable[[float], T | None]) -> T | None:
        """Return what ``take`` finds in the buffer, as soon as it does; None after ``close``."""
        while not self._closed:
            if self._unsettled.lost != self._lost_seen:
                self._lost_seen = self._unsettled.lost
                self._buffer.keep(self.holds)
            found = take(time.monotonic() - self.lease_ms / 1_000)
            if self._buffer.expired:
                self.forget_expired(self._buffer)
                self._lost_seen = self._unsettled.lost
            if found is not None:
                return found
            if self._error is not None:
                raise self._error
            self._arrived.clear()
            await self._arrived.wait()
        return None

    def forget_expired(self, buffer: Buffer) -> None:
        """Forget the deliveries that the buffer passed over."""
        while buffer.expired:
            self._unsettled.forget(*buffer.expired.pop())
        self._subscription.wake()

    async def _renew(self) -> None:
        """Extend leases of what waits here once a quarter of them is over; note what lapses elsewhere."""
        while True:
            lease_s = self.lease_ms / 1_000
            self._shorter.clear()
            with suppress(TimeoutError):  # one that has become shorter is over before that
                async with asyncio.timeout(lease_s / 8):
                    await self._shorter.wait()
            lease_s = self.lease_ms / 1_000
            now_s = time.monotonic()
            for buffer in self.waiting:
                for queue, offsets in buffer.renew(now_s - lease_s / 4, now_s):
                    held = [offset for offset in offsets if self._unsettled.holds(queue, offset)]
                    self._unsettled.settle_many(Verdict(queue, extend_ms=self.lease_ms), held)
                    self._subscription.wake()
            self._note_lapsed(lease_s, now_s)

    def _note_lapsed(self, lease_s: float, now_s: float) -> None:
        """Free the credit of what the application has let lapse."""
        waiting = [offsets for buffer in self.waiting for offsets in buffer.waiting()]
        for queue, offsets in self._lapses.look(self._unsettled.held(), waiting, lease_s, now_s):
            self._unsettled.lapse(queue, offsets)
            self._subscription.wake()

    def _acks_failed(self, queue: int, offsets: list[int], outcome: AckOutcome) -> None:
        # Not told here: what that raises is the application's error, and must not end the stream. But the
        # topic is found here: by then the queue may be another's, in another incarnation of the cluster.
        key = self.topic or self._topic_of.get(queue, ""), queue, outcome
        if key not in self._failed:
            asyncio.get_running_loop().call_soon(self._tell_failed, *key)
        self._failed.setdefault(key, []).extend(offsets)

    def _tell_failed(self, topic: str, queue: int, outcome: AckOutcome) -> None:
        offsets = tuple(self._failed.pop((topic, queue, outcome)))
        self._on_ack_failed(FailedAcks(topic, queue, offsets, outcome))

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self._arrived.set()

    def _note(self, verdict: Verdict, offsets: Sequence[int]) -> None:
        if verdict.extend_ms is not None:
            self._lapses.extended(
                verdict.queue, offsets, time.monotonic() + MARGIN * verdict.extend_ms / 1_000
            )
        acks = not verdict.nack and verdict.extend_ms is None
        if self._repeats is not None and acks and self._unsettled.is_of_now(verdict):
            self._repeats.note(verdict.queue, offsets)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("consumer")
        if self._error is not None:
            raise self._error


def _log_failed(failed: FailedAcks) -> None:
    log.warning(
        "%d acknowledgements of %s are %s: the messages may be delivered again (queue %d, offsets from %d)",
        len(failed.offsets),
        failed.topic,
        failed.outcome,
        failed.queue,
        min(failed.offsets),
    )
