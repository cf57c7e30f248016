"""One group of one topic at the leader: its consumers, its two feeds, its leases."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import structlog
from numpy.typing import NDArray

from tarry.node import handover, retries
from tarry.node.consumers import Consumer
from tarry.node.feed import Batch, Feed
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tags import tag_mask
from tarry.proto.tarry_message_pb2 import RetryReason
from tarry.replication.refusal import Reason, Refusal

if TYPE_CHECKING:
    from tarry.node.delivery import Context

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _WaitingAck:
    consumer: Consumer
    request: int
    own: NDArray[np.uint64]
    stale: NDArray[np.uint64]


def _answer(consumer: Consumer, request: int, queue: int, stale: NDArray[np.uint64]) -> None:
    if request:
        acked = consumer_pb.Acked(request=request, queue=queue, stale=stale.tolist())
        consumer.send(consumer_pb.ConsumeResponse(acked=acked).SerializeToString())


class GroupDelivery:
    """Spreads due messages over the group's consumers by free credit."""

    def __init__(self, context: Context, term: int, topic: str, group: str, queues: tuple[int, int]) -> None:
        self.topic = topic
        self.group = group
        self.consumers: list[Consumer] = []
        self._context = context
        self._term = term
        tables = context.machine.queues
        self.feeds = {
            number: Feed(tables[number], group, tables.acknowledged[group, number]) for number in queues
        }
        self._missing: set[str] = set()  # consumers of the old leader that have not come back
        self._leases: list[tuple[int, int, Feed, Batch]] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._turn = 0
        self._acks: dict[int, list[_WaitingAck]] = {}
        self._acks_flying = False

    def inherit(self, queue: int, cursor: int, consumers: Iterable[str], until_ms: int) -> None:
        """Take over the old leader's cursor: what is below may be in hand, and is held until then."""
        self.feeds[queue].hold(cursor, until_ms)
        self._missing.update(consumers)

    # -- consumers -----------------------------------------------------------------------

    def join(self, consumer: Consumer, holding: dict[int, NDArray[np.uint64]]) -> dict[int, list[int]]:
        """Add a consumer; return what it keeps of what it says it still has in hand.

        An open stream of the same name is ended: its consumer has come back.
        """
        for other in [c for c in self.consumers if c.name == consumer.name]:
            text = f"consumer {consumer.name!r} has connected again"
            other.end(Refusal(Reason.CONSUMER_REPLACED, text))
            self.consumers.remove(other)
        until_ms = self._context.time.now_ms() + consumer.lease_ms
        resumed: dict[int, list[int]] = {}
        for number, feed in self.feeds.items():
            kept = feed.resume(consumer.name, holding.get(number, np.empty(0, np.uint64)), until_ms)
            feed.give_back(consumer.name, kept.offsets if kept else np.empty(0, np.uint64))
            feed.tag_mask = tag_mask(sorted(consumer.tags))
            if kept:
                self._lease(feed, kept)
                resumed[number] = kept.offsets.tolist()
        self.consumers.append(consumer)
        self._missing.discard(consumer.name)
        if not self._missing:
            self._end_hold()
        return resumed

    def leave(self, consumer: Consumer, *, clean: bool) -> None:
        """Remove a consumer. Left cleanly, what it has in hand goes out again at once; a
        broken stream's leases go on, for it may come back."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            if clean:
                for feed in self.feeds.values():
                    feed.give_back(consumer.name, np.empty(0, np.uint64))
                self.pump()

    def end(self, refusal: Refusal) -> None:
        """End all streams and timers."""
        for consumer in self.consumers:
            consumer.end(refusal)
        self.consumers.clear()
        if self._timer is not None:
            self._timer.cancel()

    def cursors(self) -> list[log_pb.Cursor]:
        """Return the cursor of each feed for the dispatch state."""
        names = sorted({*self._missing, *(consumer.name for consumer in self.consumers)})
        return [
            log_pb.Cursor(group=self.group, queue=number, offset=feed.cursor, consumers=names)
            for number, feed in self.feeds.items()
        ]

    # -- handing over --------------------------------------------------------------------

    def pump(self) -> None:
        """Hand over what is due, end what has expired, and set the timer for what is next."""
        if not self._context.may_serve():
            return
        now_ms = self._context.time.now_ms()
        self._expire(now_ms)
        for number, feed in sorted(self.feeds.items(), reverse=True):  # retries first: they have waited
            passed = feed.load()
            share = -(-feed.due(now_ms) // max(1, sum(1 for c in self.consumers if c.wants())))
            while feed.due(now_ms) and (consumer := self._next_consumer()):
                most = min(share, consumer.wants(), self._context.config.delivery.batch_messages_max)
                skipped = self._hand_over(feed, consumer, now_ms, most)
                passed = np.concatenate([passed, skipped, feed.load()])
            if len(passed):
                self._context.spawn(self._pass_over(number, passed))
        self._set_timer(now_ms)

    def _hand_over(self, feed: Feed, consumer: Consumer, now_ms: int, most: int) -> NDArray[np.uint64]:
        taken = feed.take(now_ms, most)
        wheel = self._context.machine.wheel
        batch = handover.build(self._context.config.shard, feed.queue, taken, wheel.read, consumer.tags)
        limit = self._context.config.delivery.batch_bytes_max
        kept = handover.within(batch, limit)
        if kept < len(batch.units):
            feed.refuse(batch.units[kept:])
            batch = batch.first(kept)
        if batch.damaged:
            log.error("record damaged", topic=self.topic, ids=batch.damaged)
        if len(batch.units):
            lease = feed.hand(batch.units["offset"], consumer.name, now_ms + consumer.lease_ms)
            self._lease(feed, lease)
            consumer.credit -= len(batch.units)
            stamp = consumer_pb.DispatchStamp(
                node=self._context.config.node,
                term=self._term,
                tick=wheel.tick,
                local_index=wheel.local_index,
            )
            consumer.send(handover.serialize(batch, self.topic, stamp))
        return batch.passed

    def _next_consumer(self) -> Consumer | None:
        for _ in self.consumers:
            self._turn = (self._turn + 1) % len(self.consumers)
            if self.consumers[self._turn].wants():
                return self.consumers[self._turn]
        return None

    async def _pass_over(self, queue: int, offsets: NDArray[np.uint64]) -> None:
        command = log_pb.AckCommand(group=self.group, queue=queue, offset=offsets.astype("<u8").tobytes())
        await self._context.propose(command)

    # -- acks and nacks ------------------------------------------------------------------

    def ack(
        self, consumer: Consumer, request: int, queue: int, offsets: NDArray[np.uint64]
    ) -> Refusal | None:
        """Acknowledge; the consumer is answered (if request is not 0) once it is committed."""
        feed = self.feeds.get(queue)
        if feed is None:
            return Refusal(Reason.QUEUE_UNKNOWN, f"queue {queue} is none of this group's")
        own = feed.take_back(consumer.name, offsets)
        self._acks.setdefault(queue, []).append(_WaitingAck(consumer, request, offsets[own], offsets[~own]))
        if not self._acks_flying:
            self._acks_flying = True
            self._context.spawn(self._fly_acks())
        return None

    async def _fly_acks(self) -> None:
        """Propose all acks that wait as one command a queue; more gather meanwhile."""
        await asyncio.sleep(0)
        while self._acks:
            waiting, self._acks = self._acks, {}
            for queue, acks in waiting.items():
                offsets = np.sort(np.concatenate([ack.own for ack in acks]))
                stale = offsets[:0]
                if len(offsets):
                    column = offsets.astype("<u8").tobytes()
                    command = log_pb.AckCommand(group=self.group, queue=queue, offset=column)
                    stale = (await self._context.propose(command)).stale
                for ack in acks:
                    late = np.concatenate([ack.stale, np.intersect1d(ack.own, stale)])
                    _answer(ack.consumer, ack.request, queue, late)
        self._acks_flying = False

    def nack(
        self, consumer: Consumer, request: int, queue: int, offsets: NDArray[np.uint64], delay_ms: int | None
    ) -> Refusal | None:
        """Send messages round again after a delay (None: by the back-off table)."""
        feed = self.feeds.get(queue)
        if feed is None:
            return Refusal(Reason.QUEUE_UNKNOWN, f"queue {queue} is none of this group's")
        own = feed.take_back(consumer.name, offsets)
        self._context.spawn(self._nack(consumer, request, feed, offsets, own, delay_ms))
        return None

    async def _nack(
        self,
        consumer: Consumer,
        request: int,
        feed: Feed,
        offsets: NDArray[np.uint64],
        own: NDArray[np.bool_],
        delay_ms: int | None,
    ) -> None:
        await self._retry(feed, offsets[own], RetryReason.RETRY_REASON_NACKED, delay_ms)
        _answer(consumer, request, feed.queue.queue, offsets[~own])

    async def _retry(
        self, feed: Feed, offsets: NDArray[np.uint64], reason: RetryReason, delay_ms: int | None
    ) -> None:
        units = feed.queue.at(offsets)
        records = self._context.machine.wheel.read(units["hour"], units["global_index"])
        whole = np.array([record is not None for record in records], dtype=np.bool_)
        for command in retries.commands(
            self._context.config.shard,
            feed.queue,
            self.group,
            offsets[whole],
            [record for record in records if record is not None],
            reason,
            delay_ms,
            self._context.time.now_ms(),
            self._context.config.delivery,
        ):
            await self._context.propose(command)

    # -- leases --------------------------------------------------------------------------

    def _lease(self, feed: Feed, batch: Batch) -> None:
        heapq.heappush(self._leases, (batch.until_ms, next(self._numbers), feed, batch))

    def _expire(self, now_ms: int) -> None:
        while self._leases and (self._leases[0][3].left == 0 or self._leases[0][0] <= now_ms):
            _, _, feed, batch = heapq.heappop(self._leases)
            expired = feed.expire(batch)
            if len(expired):
                reason = RetryReason.RETRY_REASON_LEASE_EXPIRED
                self._context.spawn(self._retry(feed, expired, reason, None))
        if any(f.held_until_ms is not None and f.held_until_ms <= now_ms for f in self.feeds.values()):
            self._end_hold()

    def _end_hold(self) -> None:
        for feed in self.feeds.values():
            feed.end_hold()
        self._missing.clear()

    def _set_timer(self, now_ms: int) -> None:
        times = [self._leases[0][0]] if self._leases else []
        times += [f.held_until_ms for f in self.feeds.values() if f.held_until_ms is not None]
        if any(consumer.wants() for consumer in self.consumers):
            times += [due for f in self.feeds.values() if (due := f.next_due_ms()) is not None]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if times:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0, min(times) - now_ms) / 1000, self.pump)
