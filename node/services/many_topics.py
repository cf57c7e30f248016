"""Subscriptions of several topics: those that there are are joined, and those that come, as they do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeAlias

from tarry.node.assembly import Core
from tarry.node.delivery.consumer import Consumer
from tarry.node.delivery.delivery import Delivery
from tarry.node.delivery.group import GroupDelivery
from tarry.node.delivery.in_flight import Batch
from tarry.node.delivery.many_topics import ManyTopics, Seat
from tarry.node.edge.intake_turns import IntakeTurns
from tarry.node.services.subscriptions import Subscriptions, subscribed
from tarry.node.services.topic_choice import TopicChoice, too_many
from tarry.proto import tarry_consumer_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.replication.state_machine.refusal import Refusal

TURN_QUEUES: Final = 10_000
"""Numbers of queues that one turn of the event loop looks through for topics, at some 0.4 us each."""
PATTERNS: Final = 25
"""Of a subscription: to look for them takes as long again."""
TURN_TOPICS: Final = 50
"""Whose groups one turn opens or joins, at some 0.1 ms each."""
OPENED_AT_ONCE: Final = 50
"""Groups whose commands are under way: those that are new wait for one commit together."""

Resumed: TypeAlias = dict[int, list[Batch]]
"""What of a consumer's deliveries goes on, by queue."""
Resume: TypeAlias = Callable[[Consumer, GroupDelivery, pb.Holding], Awaitable[list[Batch]]]


class TopicsFollowed:
    """One stream, or call, with several topics, at one leader."""

    def __init__(
        self,
        core: Core,
        subscriptions: Subscriptions,
        turns: IntakeTurns,
        delivery: Delivery,
        stream: Consumer,
        choice: TopicChoice,
        start: pb.GroupStart,
    ) -> None:
        self._limits, self._node = core.config.limits, core.config.node
        self._machine, self._journal = core.machine, core.journal
        self._auto_create = core.config.groups_auto_create
        self._leadership = core.leadership
        self._subscriptions = subscriptions
        self._turns = turns
        self._delivery = delivery
        self._choice = choice
        self._start = start
        self._looked_at = 0  # queues with lower numbers
        self.many = ManyTopics(stream, delivery.turn, core.config.delivery.batch_bytes_max)

    # -- joining -------------------------------------------------------------------------

    async def open(self, holding: Iterable[pb.Holding], resume: Resume) -> Resumed | Refusal:
        """Open the groups of all topics that there are, and resume what the consumer has of them."""
        missing = [name for name in self._choice.names if self._machine.queues.find(name) is None]
        refusal = await self._open([*missing, *await self._appeared()])
        if self._start.at == pb.START_AT_LATEST:  # of a topic that comes later nothing came before
            self._start = pb.GroupStart(at=pb.START_AT_EARLIEST)
        if refusal is not None:
            return refusal
        by_queue: dict[int, list[Batch]] = {}
        for held in holding:
            seat = self._seat_of(held.queue)
            if seat is not None and seat.delivery is not None:
                kept = await resume(seat, seat.delivery, held)
                by_queue.setdefault(held.queue, []).extend(kept)
        if self._leadership.delivery is not self._delivery:
            return self._leadership.not_leader()
        return by_queue

    async def join(self, resumed: Resumed) -> Refusal | None:
        """Join the groups that are open; return why one will not have the consumer."""
        keeps: dict[str, list[Batch]] = {}
        for queue, batches in resumed.items():
            keeps.setdefault(self._machine.queues[queue].topic, []).extend(batches)
        for seat in list(self.many.seats.values()):
            refusal = await self._join(seat, keeps.get(seat.topic, ()))
            if refusal is not None:
                return refusal
        return None

    async def follow(self) -> Refusal:
        """Join topics as they come, until one cannot be joined: return why."""
        while True:
            await self._delivery.queues_beyond(self._looked_at)
            topics, before_ms = await self._appeared(), self.many.lease_ms
            refusal = await self._open(topics)
            for topic in topics:
                if refusal is None and (seat := self.many.seats.get(topic)) is not None:
                    refusal = await self._join(seat, late=True)
            if refusal is not None:
                return refusal
            if self.many.lease_ms != before_ms:
                self.many.stream.send(self.subscribed())

    def subscribed(self, resumed: Resumed | None = None) -> bytes:
        """Return the stream's first response, serialized, and what follows where its lease has changed."""
        return subscribed(
            self.many.stream.name,
            self.many.lease_ms,
            self._node,
            self._delivery.term,
            self._journal.cluster_incarnation,
            resumed or {},
        )

    async def _appeared(self) -> list[str]:
        """Return the topics of queues that are new since the last call, and not joined."""
        found = dict[str, None]()
        while self._looked_at < len(self._machine.queues):
            await self._turns.enter(1 / 4)
            piece = int(TURN_QUEUES / 4 / (1 + self._choice.patterns / PATTERNS))
            end = min(len(self._machine.queues), self._looked_at + piece)
            for number in range(self._looked_at, end):
                queue = self._machine.queues[number]
                if queue.group in ("", self.many.stream.group) and self._choice.has(queue.topic):
                    found[queue.topic] = None
            self._looked_at = end
        return [topic for topic in found if not self._has_joined(topic) and self._is_to_join(topic)]

    def _has_joined(self, topic: str) -> bool:
        """Return whether it has a seat, other than of a topic of that name that is gone."""
        seat = self.many.seats.get(topic)
        return seat is not None and seat.ended is None

    def _is_to_join(self, topic: str) -> bool:
        """Return whether a topic is there and, for a pattern where no groups are made, its group."""
        queues, group = self._machine.queues, self.many.stream.group
        if queues.find(topic) is None:
            return False
        return self._auto_create or self._choice.names_it(topic) or queues.find(topic, group) is not None

    async def _open(self, topics: Sequence[str]) -> Refusal | None:
        count = len(self.many.seats.keys() | set(topics))
        if count > self._limits.subscribed_topics_max:
            return too_many(count, self._limits)
        for start in range(0, len(topics), OPENED_AT_ONCE):
            part = topics[start : start + OPENED_AT_ONCE]
            for refusal in await asyncio.gather(*map(self._open_one, part)):
                if refusal is not None:
                    return refusal
        return None

    async def _open_one(self, topic: str) -> Refusal | None:
        await self._turns.enter(1 / TURN_TOPICS)
        if not self._choice.names_it(topic) and not self._is_to_join(topic):
            return None  # deleted meanwhile: to open it would make it anew
        seat = self.many.seat(topic)
        group = await self._subscriptions.group(seat, self._start)
        if isinstance(group, Refusal):
            gone = group.reason is Reason.GROUP_UNKNOWN and not self._is_to_join(topic)
            return None if gone and not self._choice.names_it(topic) else group
        if not group.settlement.ended:
            self.many.add(seat, group)
        return None

    async def _join(self, seat: Seat, resumed: Sequence[Batch] = (), *, late: bool = False) -> Refusal | None:
        await self._turns.enter(1 / TURN_TOPICS)
        if late and (refusal := self._replaced(seat)) is not None:
            return refusal
        group = seat.delivery
        if group is None or group.settlement.ended:
            if self._leadership.delivery is not self._delivery:
                return self._leadership.not_leader()
            self.many.forget(seat)
            return await self._join_again(seat.topic, late=late)
        if (refusal := group.differs(seat)) is not None:
            return refusal
        if seat.polls:
            group.attach(seat)
        else:
            group.join(seat, resumed)
        await group.pumped()
        return None

    async def _join_again(self, topic: str, *, late: bool) -> Refusal | None:
        """Join a topic whose group has ended since it was opened: it was idle, unless the topic is gone."""
        if not self._is_to_join(topic):
            return None
        refusal = await self._open_one(topic)
        if refusal is not None or (seat := self.many.seats.get(topic)) is None:
            return refusal
        return await self._join(seat, late=late)

    def _replaced(self, seat: Seat) -> Refusal | None:
        """Return that another stream, which has come later, has the consumer's name."""
        ended, group = self.many.stream.ended, seat.delivery
        if ended is not None or group is None or all(one.name != seat.name for one in group.consumers):
            return ended
        text = f"consumer {seat.name!r} has another stream, which has topic {seat.topic!r}"
        return Refusal(Reason.CONSUMER_REPLACED, text)

    async def attach(self, first: int) -> Refusal | None:
        """Join for one call, from another topic on in each, as long as it would take more."""
        seats = list(self.many.seats.values())
        begin = first % len(seats) if seats else 0
        for seat in (*seats[begin:], *seats[:begin]):
            if not self.many.stream.credit:
                break
            if (refusal := await self._join(seat)) is not None:
                return refusal
        return None

    # -- requests ------------------------------------------------------------------------

    def group_of(self, queue: int) -> GroupDelivery | Refusal | None:
        """Return the group that a queue is of; None where it is gone, and what was delivered of it stale."""
        if queue >= len(self._machine.queues):
            return Refusal(Reason.QUEUE_UNKNOWN, f"queue {queue} is of no topic")
        seat = self._seat_of(queue)
        return None if seat is None else seat.delivery

    def _seat_of(self, queue: int) -> Seat | None:
        if queue >= len(self._machine.queues):
            return None
        seat = self.many.seats.get(self._machine.queues[queue].topic)
        return seat if seat is not None and seat.delivery and queue in seat.delivery.feeds else None

    def give(self) -> None:
        """Deliver: there is more credit."""
        self.many.serve_soon()

    def caught_up(self) -> None:
        """Deliver: the stream takes more."""
        self.many.serve_soon()

    @property
    def awaits_disk(self) -> bool:
        """True while something that is due is being read from the disk."""
        groups = (seat.delivery for seat in self.many.seats.values() if seat.delivery is not None)
        return any(group.awaits_disk for group in groups)

    # -- the end -------------------------------------------------------------------------

    async def leave(self, *, clean: bool) -> None:
        """Leave all groups; where that is in order, delete those that are temporary."""
        self._delivery.several.pop(self.many, None)
        groups = await self.many.leave(clean=clean)
        if clean and self.many.stream.temporary:
            for start in range(0, len(groups), OPENED_AT_ONCE):
                await asyncio.gather(*map(self._subscriptions.left, groups[start : start + OPENED_AT_ONCE]))
