"""One group of one topic at the leader: its consumers, its two feeds, its leases."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from tarry.node.delivery import batch as delivery_batch
from tarry.node.delivery import failover_cursors
from tarry.node.delivery.cached_batches import CachedBatches
from tarry.node.delivery.consumer import Consumer, PolledFilter, differs
from tarry.node.delivery.consumer_table import ConsumerTable, Shown
from tarry.node.delivery.delivery_rate import DeliveryRate
from tarry.node.delivery.feed import LOOK_UNITS_MAX, NONE, TURN_LOOKS_MAX, Feed
from tarry.node.delivery.in_flight import Batch, InFlight
from tarry.node.delivery.leases import Leases
from tarry.node.delivery.mends import Mends
from tarry.node.delivery.offset_pieces import PIECE_OFFSETS
from tarry.node.delivery.ordering import Lanes
from tarry.node.delivery.places import STANDING_CONSUMERS, Standing
from tarry.node.delivery.seats import Seats
from tarry.node.delivery.selection import Selection
from tarry.node.delivery.settlement import Settlement
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.reasons import Reason
from tarry.proto.tags import tag_filter
from tarry.proto.tarry_message_pb2 import RetryReason
from tarry.replication.state_machine.ready_queue import UnitsDamaged
from tarry.replication.state_machine.refusal import Refusal

if TYPE_CHECKING:
    from tarry.node.delivery.context import Context


ANSWER_LOOK_MS: Final = 2
"""Interval at which to look whether a majority has answered, while something due waits for that."""
LEASE_LOOK_S: Final = 0.05
"""Interval at which to ask for the lease again, while it is over."""

# Of what all groups do in one turn of the event loop, in which nothing else of this node runs: each by itself
# takes 6 to 10 ms; what is beyond goes with the next turns.
TURN_MESSAGES_MAX: Final = 4_000
"""Messages delivered."""
TURN_BYTES_MAX: Final = 4 << 20
"""Of records read: some 2 ms a MiB."""
TURN_HOURS_MAX: Final = 64
"""Read from: to open one takes some 0.1 ms."""
TURN_RESPONSES_MAX: Final = 200
"""Built, whatever is in them: some 0.05 ms, and as long again to write one."""
TURN_ENDS_MAX: Final = 100
"""Streams and calls that end as the group does: some 0.1 ms each, with what their handlers do then."""
TURN_PUMPS_MAX: Final = 125
"""Groups that look what is due: some 0.06 ms each."""
TURN_CONSUMERS_MAX: Final = 8_000
"""Consumers that these look at: some 1 us each."""
TURN_LET_GO_MAX: Final = 4 * PIECE_OFFSETS
"""Messages whose leases end, or that a consumer gives back: some 0.7 us each, where each went out alone."""


class GroupDelivery:
    """Spreads due messages over the group's consumers by free credit."""

    def __init__(
        self,
        context: Context,
        term: int,
        topic: str,
        group: str,
        queues: tuple[int, int],
        changed: Callable[[GroupDelivery], None],
    ) -> None:
        """Take ``changed``, called when the cursors that a heartbeat tells of this group have changed."""
        self.topic = topic
        self.group = group
        self.consumers: list[Consumer] = []
        self.seats = Seats(self._bytes_in_hand)
        self._selection = Selection(context.config.delivery, group, context.machine.queues.acknowledged)
        self._bytes_kept = False  # what consumers have in hand has kept messages from one
        self._context = context
        self._term = term
        self._changed = partial(changed, self)
        self.feeds: dict[int, Feed] = {}
        self._make_feeds(*queues)
        self._table = ConsumerTable()
        self._missing: set[str] = set()  # consumers of the old leader that have not come back
        self._waits_until_ms = 0  # for them, whatever may be in flight to them
        self._leases = Leases()
        self._policy_changes = context.machine.queues.changes_of_policy
        policy = context.policy(topic, group)
        self._lease_ms = policy.lease_ms
        self._rate = DeliveryRate(policy.delivery_per_s_max, context.time.now_ms())
        self._polled = PolledFilter(self._lease_ms)
        self._timer: asyncio.TimerHandle | None = None
        self.wakes_at_ms: int | None = None  # by cluster time
        self._turn = 0
        self._used_ms = context.time.now_ms()
        self.cursors = b""  # its cursors in a serialized DispatchState, as a heartbeat told them last
        self._names_leases = False  # they name leases
        self._batches = CachedBatches(context, self.pump)
        self._mends = Mends(context, self.pump)
        self.settlement = Settlement(context, group, self.feeds, self.pump, self._leases_changed)

    def _make_feeds(self, queue: int, retry_queue: int) -> None:
        tables = self._context.machine.queues
        lanes = Lanes(tables, queue, retry_queue)
        for number in (queue, retry_queue):
            had = self.feeds[number].had_below if number in self.feeds else 0
            acknowledged = tables.acknowledged[self.group, number]
            self.feeds[number] = Feed(tables[number], acknowledged, lanes, self._context.marks, had)
        self._set_delay(self._context.policy(self.topic, self.group).delay_ms)

    def _set_delay(self, delay_ms: int) -> None:
        """Let another delay count from now on for the topic's queue: a retry only waits for its back-off."""
        for feed in self.feeds.values():
            feed.delay.ms = 0 if feed.queue.group else delay_ms

    def begin_again(self) -> bool:
        """Go on from what the log now says is acknowledged; False where the group is gone.

        What is in flight counts no more: their acks will be stale.
        """
        tables = self._context.machine.queues
        if any((self.group, number) not in tables.acknowledged for number in self.feeds):
            return False
        self._make_feeds(*self.feeds)
        self._leases.clear()
        self._stir()
        for consumer in self.consumers[:1]:
            self._set_filter(consumer)
        self._context.spawn(self.pumped())
        return True

    def forget_trimmed(self) -> None:
        """Forget what queues have lost by a trim; the consumers keep what else they have in hand."""
        for feed in self.feeds.values():
            feed.forget_trimmed()
        self._stir()
        self._context.spawn(self.pumped())

    def _stir(self) -> None:
        self._changed()
        self._context.stir()

    def _leases_changed(self, consumer: str) -> None:
        if self._names_leases:
            self._changed()
        if self._bytes_kept:  # it may be in hand no more
            self._bytes_kept = False
            self._wake_in(0)  # once for all that is settled in this turn
        self.seats.note(consumer)

    def inherit(self, cursor: log_pb.Cursor, begun_ms: int) -> None:
        """Take over the old leader's cursor: what is below may be in flight, and is held for a lease.

        The leases that it names go on as they are. Nobody knows of what lies above, but below ``doubtful``:
        its consumers get a moment to come back and say so, before anything is handed to others.
        """
        settings, feed = self._context.config.delivery, self.feeds[cursor.queue]
        failover_cursors.take_over(feed, self._leases, cursor, begun_ms, self.lease_ms)
        self._missing.update(cursor.consumers)
        if cursor.doubtful > cursor.offset:
            self._waits_until_ms = begun_ms + settings.resume_ms

    @property
    def lease_ms(self) -> int:
        """Lease of consumers that ask for none, by the group's policy as it is now."""
        self._renew_policy()
        return self._lease_ms

    def _renew_policy(self) -> None:
        """Deliver by the policy as it is now; tell consumers that asked for no lease of another one."""
        changes = self._context.machine.queues.changes_of_policy
        if changes == self._policy_changes:
            return
        self._policy_changes = changes
        policy = self._context.policy(self.topic, self.group)
        self._rate.change(policy.delivery_per_s_max, self._context.time.now_ms())
        self._set_delay(policy.delay_ms)
        before, self._lease_ms = self._lease_ms, policy.lease_ms
        if self._lease_ms == before:
            return
        self._polled.lease_ms = self._lease_ms
        for consumer in self.consumers:
            if consumer.asks_no_lease:
                consumer.lease_ms = self._lease_ms
                if not consumer.polls:
                    consumer.send(self.subscribed(consumer))

    def subscribed(self, consumer: Consumer) -> bytes:
        told = log_pb.SubscribedColumns(consumer=consumer.name, lease_ms=consumer.told_lease_ms)
        told.term, told.node = self._term, self._context.config.node
        told.incarnation = self._context.incarnation
        return log_pb.ConsumedColumns(subscribed=told).SerializeToString()

    # -- consumers -----------------------------------------------------------------------

    def resume(self, consumer: Consumer, queue: int, offsets: NDArray[np.uint64]) -> Batch | None:
        """Let a consumer that is about to join keep what it says it has in flight; return what it keeps.

        An open stream of the same name is ended: its consumer has come back.
        """
        self._replace(consumer)
        feed = self.feeds.get(queue)
        if feed is None:
            return None
        kept = feed.resume(consumer.name, offsets, self._context.time.now_ms() + consumer.lease_ms)
        if kept:
            self._add_lease(feed, kept)
        return kept

    def join(self, consumer: Consumer, resumed: Collection[Batch] = ()) -> None:
        """Add a consumer, which keeps of what it had in flight what it has resumed."""
        self._replace(consumer)
        self._give_back(consumer.name, resumed)
        self.attach(consumer)
        if not self._missing:
            self._end_hold()

    def _replace(self, consumer: Consumer) -> None:
        for other in [c for c in self.consumers if c.name == consumer.name]:
            text = f"consumer {consumer.name!r} has connected again"
            other.end(Refusal(Reason.CONSUMER_REPLACED, text))
            self.consumers.remove(other)
            self.seats.remove(other)

    def _give_back(self, consumer: str, keep: Collection[Batch] = ()) -> None:
        """Give back what is in flight to the consumer, but for ``keep``, in as many turns as it takes."""
        kept = set(keep)
        lost = [
            (feed, batch)
            for feed in self.feeds.values()
            for batch in feed.in_flight.batches(consumer)
            if batch not in kept
        ]
        if lost:
            self._context.turn.do(partial(self._give_back_some, consumer, lost))

    def _give_back_some(self, consumer: str, lost: list[tuple[Feed, Batch]]) -> None:
        count, piece = 0, defaultdict[Feed, list[Batch]](list)
        while lost and count < PIECE_OFFSETS:
            feed, batch = lost.pop()
            count += batch.left
            piece[feed].append(batch)
        for feed, batches in piece.items():
            feed.give_back(consumer, batches)
        self._context.turn.spend(count / TURN_LET_GO_MAX)
        if lost:
            self._context.turn.do(partial(self._give_back_some, consumer, lost))
        else:
            self._wake_in(0)

    def differs(self, consumer: Consumer) -> Refusal | None:
        """Return why the consumer's filter will not do beside the group's."""
        in_flight = any(feed.in_flight_messages for feed in self.feeds.values())
        polled = self._polled.differs(consumer, self._context.time.now_ms(), in_flight=in_flight)
        return differs(consumer, self.consumers) or polled

    def attach(self, consumer: Consumer) -> None:
        """Add one that takes what is due once and goes again; its leases go on without it."""
        if consumer.asks_no_lease:
            consumer.lease_ms = self.lease_ms
        self._set_filter(consumer)
        consumer.since_ms = self._context.time.now_ms()
        self._polled.note(consumer, consumer.since_ms)
        self._table.came(consumer)
        self.consumers.append(consumer)
        if consumer.topics:
            self.seats.add(consumer)
        self._stir()
        if not consumer.polls:
            self._missing.discard(consumer.name)

    def extend(
        self, consumer: str, queue: int, offsets: NDArray[np.uint64], lease_ms: int
    ) -> NDArray[np.uint64] | Refusal:
        """Make leases end lease_ms from now; return the offsets that are not the consumer's."""
        until_ms = self._context.time.now_ms() + lease_ms
        extended = self.settlement.extend(consumer, queue, offsets, until_ms)
        if isinstance(extended, Refusal):
            return extended
        batch, stale = extended
        if batch is not None:
            self._leases.add(self.feeds[queue], batch)
            if self.wakes_at_ms is None or until_ms < self.wakes_at_ms:
                self.pump_soon()
        return stale

    def _set_filter(self, consumer: Consumer) -> None:
        self._selection.use(consumer.tags, consumer.filter)
        for feed in self.feeds.values():
            feed.tags = tag_filter(consumer.tags) if consumer.tags else None

    def leave(self, consumer: Consumer, *, clean: bool) -> None:
        """Remove a consumer. Left cleanly, what is in flight to it goes out again at once; a
        broken stream's leases go on, for it may come back."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            self.seats.remove(consumer)
            self._used_ms = self._context.time.now_ms()
            self._polled.note(consumer, self._used_ms)
            self._table.left(consumer, self._in_flight())
            self._stir()
            if clean:
                self._give_back(consumer.name)
                self._wake_in(0)  # once for all that leave in this turn

    def shown(self) -> Iterator[Shown | None]:
        """Yield None after each piece of the work to show its consumers, then these."""
        return self._table.shown(self.consumers, self._in_flight())

    def _in_flight(self) -> list[InFlight]:
        return [feed.in_flight for feed in self.feeds.values()]

    def end(self, refusal: Refusal) -> None:
        """End all streams, calls that wait and timers; of all groups, TURN_ENDS_MAX calls in each turn."""
        self.stop(refusal)
        self.end_calls(refusal)

    def stop(self, refusal: Refusal) -> None:
        """Read and deliver nothing more; ``end_calls`` is to follow."""
        self.settlement.ended = True
        for consumer in self.consumers:
            consumer.ended = consumer.ended or refusal

    def end_calls(self, refusal: Refusal) -> None:
        """End the timer, all streams and calls that wait, TURN_ENDS_MAX calls in each turn."""
        if self._timer is not None:
            self._timer.cancel()
        ends = [partial(consumer.end, refusal) for consumer in self.consumers]
        self.consumers.clear()
        self.seats.clear()
        self._end_some([*ends, *self.settlement.ends()])

    def _end_some(self, ends: list[Callable[[], None]]) -> None:
        turn = self._context.turn
        while ends and turn.left > 0:
            turn.spend(1 / TURN_ENDS_MAX)
            ends.pop()()
        if ends:
            turn.do(partial(self._end_some, ends))

    @property
    def awaits_disk(self) -> bool:
        """True while something that is due is being read from the disk."""
        return any(feed.awaits_disk for feed in self.feeds.values())

    def is_over(self, now_ms: int) -> bool:
        """Return whether nobody has been here for a lease, and all that there was to say is in the log."""
        if self.consumers or self.settlement.busy or any(feed.is_out() for feed in self.feeds.values()):
            self._used_ms = now_ms
        return now_ms >= self._used_ms + self.lease_ms

    def serialize_cursors(self, sent_s: float | None, leases_max: int) -> None:
        """Set ``cursors`` for a heartbeat sent then; None: nothing more is delivered.

        It names leases_max messages at most that are in flight to consumers without a stream.
        """
        most, now_ms = self._context.config.delivery.reserved_messages_max, self._context.time.now_ms()
        limits = failover_cursors.limits(self.feeds, sent_s, now_ms, most)
        streams = {consumer.name for consumer in self.consumers if not consumer.polls} | self._missing
        built = failover_cursors.cursors(self.group, self.feeds, self._leases, streams, limits, leases_max)
        for cursor in built:
            self.feeds[cursor.queue].announced = max(cursor.offset, cursor.doubtful)
        self._names_leases = any(cursor.leases for cursor in built)
        self.cursors = log_pb.DispatchState(cursors=built).SerializeToString()

    def is_covered(self) -> bool:
        """Return whether a leader that knows only ``cursors`` would mark all that it delivers again."""
        return all(feed.cursor <= feed.announced for feed in self.feeds.values())

    # -- delivery --------------------------------------------------------------------

    def pump(self) -> None:
        """Deliver what is due, end what has expired, and set the timer for what is next.

        In a later turn of the event loop, behind other groups, where they have used up this one.
        """
        self._context.turn.do(self._pump_now)

    async def pumped(self) -> None:
        """Pump; return once it is done."""
        await self._context.turn.done(self._pump_now)

    def _pump_now(self) -> None:
        """Pump in this turn.

        An error ends the node, whoever called: a timer, a task or a request; damaged units of a queue end all
        delivery until they are mended. What was taken from the feeds by then neither waits nor is in flight,
        so only another leader delivers it, or this one when it begins anew.
        """
        if self.settlement.ended or self._context.over.is_set():
            return
        try:
            with self._context.holds.by("delivery"):
                self._pump()
                self.seats.note_all()
            looked_at = len(self.consumers) + 2 * len(self.seats)  # to note bytes takes as long as two looks
            self._context.turn.spend(1 / TURN_PUMPS_MAX + looked_at / TURN_CONSUMERS_MAX)
        except UnitsDamaged as damage:
            self._context.fail(damage)
        except Exception as error:
            self._context.fail(error)
            raise

    def _pump(self) -> None:
        if not self._context.may_serve():
            self._wake_in(LEASE_LOOK_S)  # a lease that is back before anybody notices wakes nobody
            return
        self._stir()
        self._renew_policy()
        now_ms = self._context.time.now_ms()
        self._expire(now_ms)
        if not all(feed.close_held() for feed in self.feeds.values()):
            self._spend()
            self._wake_in(0)
            return
        if self._waits(now_ms):
            self._set_timer(now_ms)
            return
        confirmed_s = self._context.confirmed_s()
        turn, hours = self._context.turn, set[int]()
        for feed in self.feeds.values():
            if turn.left > 0:
                feed.wait_again()
                self._spend()
        for _, feed in sorted(self.feeds.items(), reverse=True):  # retries first: they have waited
            feed.reservation.confirm(confirmed_s)
            looked = feed.next
            end = looked + max(0, LOOK_UNITS_MAX - self.settlement.passing)
            passed = [self._load(feed, end, now_ms)]
            due = self._rate.within(feed.due(now_ms), now_ms)
            share = -(-due // max(1, sum(1 for c in self.consumers if self._wants(c)))) if due else 0
            while due and turn.left > 0 and not feed.awaits_disk and (consumer := self._next_consumer()):
                wanted = min(share, self._wants(consumer), due)
                opened = len(hours)
                most = min(self._selection.ahead(wanted), feed.due(now_ms))
                most = feed.within(most, hours, opened + math.ceil(turn.left * TURN_HOURS_MAX))
                turn.spend((len(hours) - opened) / TURN_HOURS_MAX)
                passed += [self._deliver(feed, consumer, now_ms, most, wanted), self._load(feed, end, now_ms)]
                due = self._rate.within(feed.due(now_ms), now_ms)
            turn.spend((feed.next - looked) / TURN_LOOKS_MAX)
            if any(map(len, passed)):
                self.settlement.pass_over(feed, np.concatenate(passed))
            self._mends.look(feed)
        most = self._context.config.delivery.reserved_messages_max
        needed = ((feed, feed.needs(now_ms), feed.reserves(now_ms, most)) for feed in self.feeds.values())
        if any(feed.reservation.is_low(least, most, limit) for feed, least, limit in needed):
            self._context.beat()
        self._set_timer(now_ms)

    def pump_soon(self) -> None:
        """Pump when there next is something to do, be it at once."""
        self._set_timer(self._context.time.now_ms())

    def _load(self, feed: Feed, end: int, now_ms: int) -> NDArray[np.uint64]:
        passed = feed.load(end, now_ms)
        self._spend()
        return passed

    def _spend(self) -> None:
        """Count in the turn what the feeds have done."""
        self._context.turn.spend(sum(feed.take_spent() for feed in self.feeds.values()))

    def _deliver(
        self, feed: Feed, consumer: Consumer, now_ms: int, most: int, wanted: int
    ) -> NDArray[np.uint64]:
        """Deliver up to ``wanted`` of the next ``most``; return the offsets that the group is not to have."""
        taken = feed.take(now_ms, most)
        index = delivery_batch.index_of(self._context.machine.wheel, taken)
        sizes = np.cumsum(index["size"], dtype=np.int64)
        count = delivery_batch.within(sizes, self._selection.bytes_max)
        if count < len(taken):
            feed.refuse(taken[count:])
            taken, index = taken[:count], index[:count]
        read_bytes = int(sizes[count - 1]) if count else 0
        self._context.turn.spend(
            1 / TURN_RESPONSES_MAX + most / TURN_MESSAGES_MAX + read_bytes / TURN_BYTES_MAX
        )
        self._context.turn.spend(self._selection.share(len(taken), read_bytes))
        own = delivery_batch.belongs(self._context.machine.queues, feed.queue, taken, index)
        if not own.all():
            self._mends.deliver_proven(feed, taken[~own])
            taken = taken[own]
        if not len(taken):
            return taken["offset"]
        wheel = self._context.machine.wheel
        batch = self._batches.build(feed, taken, self._selection, wanted)
        if batch is None:
            return NONE
        if len(batch.damaged):
            self._mends.deliver_mended(feed, batch.damaged)
        if len(batch.units):
            until_ms = now_ms + consumer.lease_ms
            lease = feed.lease(batch.units["offset"], consumer.name, until_ms, batch.size_bytes)
            self._add_lease(feed, lease)
            consumer.use(len(batch.units), batch.size_bytes)
            self._rate.take(len(batch.units))
            stamp = consumer_pb.DispatchStamp(
                node=self._context.config.node,
                term=self._term,
                tick=wheel.tick,
                local_index=wheel.local_index,
            )
            consumer.send(delivery_batch.serialize(batch, self.topic, stamp, now_ms, feed.delay.ms))
            names, delay_ms = (self.topic, self.group), feed.delay.ms
            self._context.ledger.delivered(batch, *names, consumer.name, self._term, delay_ms)
            self._context.traffic.delivered(batch, *names, now_ms, delay_ms)
        feed.lanes.leave(feed.queue.queue, batch.passed)
        return batch.passed

    def _waits(self, now_ms: int) -> bool:
        return bool(self._missing) and now_ms < self._waits_until_ms

    def _next_consumer(self) -> Consumer | None:
        for _ in self.consumers:
            self._turn = (self._turn + 1) % len(self.consumers)
            if self._wants(self.consumers[self._turn]):
                return self.consumers[self._turn]
        return None

    def _wants(self, consumer: Consumer) -> int:
        wants = consumer.wants(self._bytes_in_hand(consumer.name))
        self._bytes_kept |= consumer.bytes_kept
        return wants

    def _bytes_in_hand(self, consumer: str) -> float:
        return sum(feed.in_flight.record_bytes(consumer) for feed in self.feeds.values())

    def next_due_ms(self) -> int | None:
        """Return when the first of what waits is due; None where nothing does."""
        dues = [due_ms for feed in self.feeds.values() if (due_ms := feed.next_due_ms()) is not None]
        return min(dues, default=None)

    def standing(self, now_ms: int) -> Standing:
        """Return what consumers it has, and what keeps all of it from them."""
        return Standing(
            len(self.consumers),
            any(map(self._wants, self.consumers[:STANDING_CONSUMERS])),
            self._waits_until_ms if self._waits(now_ms) else 0,
            0 if self._rate.within(1, now_ms) else self._rate.opens_ms(now_ms, now_ms),
        )

    # -- leases --------------------------------------------------------------------------

    def _expire(self, now_ms: int) -> None:
        expired = defaultdict[Feed, list[NDArray[np.uint64]]](list)
        for feed, part in self._leases.expire(now_ms, PIECE_OFFSETS):
            expired[feed].append(part)
        for feed, parts in expired.items():
            offsets, reason = np.concatenate(parts), RetryReason.RETRY_REASON_LEASE_EXPIRED
            self._context.turn.spend(len(offsets) / TURN_LET_GO_MAX)
            self._context.spawn(self.settlement.retry(feed, offsets, reason))
        ends = [ends_ms for feed in self.feeds.values() if (ends_ms := feed.hold_ends_ms()) is not None]
        if ends and min(ends) <= now_ms:
            self._end_hold()

    def _add_lease(self, feed: Feed, lease: Batch) -> None:
        self._leases.add(feed, lease)
        if not self.is_covered():
            self._changed()

    def _end_hold(self) -> None:
        for feed in self.feeds.values():
            feed.end_hold()
        self._spend()
        self._missing.clear()

    def _set_timer(self, now_ms: int) -> None:
        ends = [self._leases.next_ms(), *(feed.hold_ends_ms() for feed in self.feeds.values())]
        times = [at_ms for at_ms in ends if at_ms is not None]
        if self._waits(now_ms):
            times.append(self._waits_until_ms)
        elif any(self._wants(consumer) for consumer in self.consumers):
            for feed in self.feeds.values():
                if feed.to_look() and self.settlement.passing < LOOK_UNITS_MAX:
                    times.append(now_ms)
                times += [] if (looks_ms := feed.looks_ms()) is None else [looks_ms]
                due_ms = None if feed.awaits_disk else feed.next_due_ms()
                if due_ms is not None and due_ms <= now_ms and not feed.due(now_ms):
                    due_ms = now_ms + ANSWER_LOOK_MS
                times += [] if due_ms is None else [self._rate.opens_ms(due_ms, now_ms)]
        self.wakes_at_ms = at_ms = min(times, default=None)
        self._wake_in(None if at_ms is None else self._context.time.seconds_until(at_ms))

    def _wake_in(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self.pump)
