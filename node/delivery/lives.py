"""Life of one message at the leader: what it is to each group of its topic, now.

    the message ─► its offset in the ready queue ─► each group: not acknowledged ─► its place in the feed
                                                           │ acknowledged
                                                           └─► a retry of it waits? ─► its place in turn

Every search has a bound, and what lies beyond is told as such.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from tarry.node.delivery import life_words, waiting_retries
from tarry.node.delivery.life_words import Facts
from tarry.node.delivery.offset_search import NOT_THERE, OffsetSearch, keys_of
from tarry.node.delivery.places import Found, Place, Standing
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.dead_letters import NO_TOPIC, dead_letter_topic
from tarry.proto.message_id import MessageId
from tarry.proto.tarry_message_pb2 import Retried
from tarry.replication.state_machine.event_details import origins
from tarry.replication.state_machine.lanes import unpack
from tarry.replication.state_machine.ready_queue import ReadyQueue
from tarry.wheel.state import MessageState, UnknownMessage

if TYPE_CHECKING:
    from tarry.node.delivery.context import Context
    from tarry.node.delivery.group import GroupDelivery

GROUPS_MAX: Final = 1_000
"""Told of one message, the first by name."""
UNITS_MAX: Final = 4 << 20
"""Of a queue that are looked through for one message, beyond the place of its due time."""
COPIES_MAX: Final = 32_768
"""Of retries that are read for one message, in all its groups, at some 5 us each."""
GROUPS_SEARCHED_MAX: Final = 64
"""Whose retries are looked through for one message."""

Id = tuple[int, int]
"""Hour and global index."""


class Placed(NamedTuple):
    """A released message in a queue."""

    queue: ReadyQueue
    offset: int
    unit: np.void


class Lives:
    """Lives of messages, as long as one delivery lasts."""

    def __init__(
        self,
        context: Context,
        find: Callable[[str, str], GroupDelivery | None],
        inherited: Callable[[str, int], int],
    ) -> None:
        """Take what the delivery knows.

        Args:
            find: the group of a topic, if it is open.
            inherited: the offset below which a group that is not open may have had anything.
        """
        self.context, self.find, self.inherited = context, find, inherited
        self._queues = context.machine.queues

    async def tell(
        self, queue: ReadyQueue, message: Id, due_ms: int, state: MessageState
    ) -> pb.GetLifeResponse:
        """Return what is known of a message of a topic's queue, by its place, but for its id.

        Raises UnitsDamaged and WheelDamaged.
        """
        told, placed = pb.GetLifeResponse(topic=queue.topic, due_ms=due_ms, queue_topic=queue.topic), None
        withdrawn = state is MessageState.CANCELLED
        if state is MessageState.RELEASED or withdrawn:
            for place in filter(None, (queue, self._queues.find(dead_letter_topic(queue.topic)))):
                placed, looked_at_all = await self._place(place, message, due_ms)
                told.not_searched |= not looked_at_all
                if placed is not None:
                    told.queue_topic = place.topic
                    told.offset, told.released_ms = placed.offset, _released_ms(placed.unit)
                    told.not_searched = False
                    break
        of = queue if placed is None else placed.queue
        groups = self._queues.groups_of(of.queue) if not of.deleted else []
        telling = _Telling(self, message, due_ms, state)
        for group in groups[:GROUPS_MAX]:
            told.groups.append(await telling.tell(of, placed, group, not_searched=told.not_searched))
        told.groups_left_out = len(groups[GROUPS_MAX:])
        return told

    async def _place(self, queue: ReadyQueue, message: Id, due_ms: int) -> tuple[Placed | None, bool]:
        """Return where a message is in a queue, and whether the search came to its end."""
        queues, number = self._queues, queue.queue
        floors = [queues.acknowledged[group, number].floor for group in queues.groups_of(number)]
        return await placed_in(self.context, queue, min(floors, default=queue.first), message, due_ms)


async def placed_in(
    context: Context, queue: ReadyQueue, floor: int, message: Id, due_ms: int
) -> tuple[Placed | None, bool]:
    """Return where a message is in a queue, and whether the search came to its end. Raises UnitsDamaged."""
    hour, index = columns_of(message)
    search = OffsetSearch(queue, floor, hour, index, np.array([due_ms]), UNITS_MAX)
    await search.run(context.pieces.part)
    offset = int(search.found[0])
    if offset == NOT_THERE or queue.deleted or offset < queue.first:
        return None, not search.ended_early
    return Placed(queue, offset, queue.read(offset, 1)[0]), True


class _Telling:
    """One answer: the groups share what may be searched for it."""

    def __init__(self, lives: Lives, message: Id, due_ms: int, state: MessageState) -> None:
        self._context, self._find, self._inherited = lives.context, lives.find, lives.inherited
        self._queues, self._wheel = lives.context.machine.queues, lives.context.machine.wheel
        self._message, self._due_ms, self._state = message, due_ms, state
        self._copies_left, self._groups_left = COPIES_MAX, GROUPS_SEARCHED_MAX

    async def tell(
        self, queue: ReadyQueue, placed: Placed | None, group: str, *, not_searched: bool
    ) -> pb.MessageInGroup:
        """Return what the message is to one group."""
        facts = await self._context.pieces.alone(partial(self._first, queue, placed, group))
        if facts.state in (pb.GROUP_STATE_DONE, pb.GROUP_STATE_GONE, pb.GROUP_STATE_CANCELLED):
            facts = await self._retry(queue, group, facts)
            if not_searched and facts.state == pb.GROUP_STATE_GONE:
                facts = facts._replace(state=pb.GROUP_STATE_UNSPECIFIED)
        return self._told(queue.topic, group, facts)

    def _first(self, queue: ReadyQueue, placed: Placed | None, group: str) -> Facts:
        """Return what is known of its first delivery to a group."""
        now_ms = self._context.time.now_ms()
        delivery = self._find(queue.topic, group)
        standing = delivery.standing(now_ms) if delivery is not None else Standing()
        if self._state is MessageState.PENDING:
            delay_ms = self._queues.delay_ms(queue.topic, group)
            due_ms = self._due_ms + delay_ms
            facts = Facts(pb.GROUP_STATE_WAITING, standing, now_ms, attempt=1, due_ms=due_ms)
            return facts._replace(pending=True, delay_ms=delay_ms)
        if placed is None:
            cancelled = self._state is MessageState.CANCELLED
            state = pb.GROUP_STATE_CANCELLED if cancelled else pb.GROUP_STATE_GONE
            withdrawn = cancelled and self._wheel.is_withdrawn(*self._message)
            return Facts(state, standing, now_ms, withdrawn=withdrawn)
        facts = self._facts(delivery, group, placed, standing, now_ms, attempt=1)
        if facts.state == pb.GROUP_STATE_DONE and placed.offset in self._queues.cancelled.of(queue.queue):
            return facts._replace(state=pb.GROUP_STATE_CANCELLED, withdrawn=True)
        return facts

    def _facts(
        self,
        delivery: GroupDelivery | None,
        group: str,
        placed: Placed,
        standing: Standing,
        now_ms: int,
        attempt: int,
    ) -> Facts:
        """Return what is known of a delivery to a group, from the topic's queue or its retry queue."""
        queue, offset, unit = placed
        delay_ms = 0 if queue.group else self._queues.delay_ms(queue.topic, group)
        due_ms = int(unit["due_ms"]) + delay_ms
        facts = Facts(pb.GROUP_STATE_DONE, standing, now_ms, attempt, due_ms, delay_ms=delay_ms)
        known = self._queues.acknowledged.get((group, queue.queue))
        if known is None or known.contains(np.array([offset], np.uint64))[0]:
            return facts._replace(attempt=0)
        lane, taken = int(unit["lane"]), False
        facts = facts._replace(opens_ms=queue.pace.opens_ms(offset))
        if delivery is None:
            maybe = offset < self._inherited(group, queue.queue)
            before = known.missing_count(known.floor, offset)
            found = Found(Place.WAITING, before=before, maybe_delivered=maybe)
        else:
            feed = delivery.feeds[queue.queue]
            found, taken = feed.find(offset, lane), feed.lanes.is_taken(lane)
            mask = np.array([unit["tag_mask"]], np.uint64)
            left_out = feed.tags is not None and not feed.tags.may_match(mask)[0]
            facts = facts._replace(awaits_disk=feed.awaits_disk, damaged=feed.damage is not None)
            facts = facts._replace(left_out=left_out)
        retry = self._is_behind_retry(queue, group, unit)
        return life_words.at(facts, found, behind_retry=retry, behind_taken=taken)

    def _is_behind_retry(self, queue: ReadyQueue, group: str, unit: np.void) -> bool:
        """Return whether a message waits for another's retry."""
        copies = queue if queue.group else self._queues.find(queue.topic, group)
        if copies is None or not unit["lane"]:
            return False
        retry = self._queues.blocked.retry(copies.queue, int(unit["lane"]))
        own = (int(unit["hour"]), int(unit["global_index"])) if queue.group else None
        return retry is not None and retry != own

    # -- retries -------------------------------------------------------------------------

    async def _retry(self, queue: ReadyQueue, group: str, facts: Facts) -> Facts:
        """Return what is known of the message's retry, if one waits or is in hand; else the facts."""
        copies = self._queues.find(queue.topic, group)
        if copies is None or queue.group or not self._waiting(copies, group):
            return facts
        copy, sure = await self._copy(copies, group)
        if copy is None:
            done = facts.state == pb.GROUP_STATE_DONE
            return facts if sure or not done else facts._replace(state=pb.GROUP_STATE_DONE_OR_RETRIED)
        hour, index = columns_of(copy)
        try:
            due_ms = int(self._context.machine.due_ms(hour, index)[0])
            record = (await self._context.damage.read(hour, index))[0]
            state = self._wheel.state(*copy)
        except UnknownMessage:
            return facts
        retried = retried_of(record) or Retried()
        facts = facts._replace(retry_id=copy, reason=retried.reason)
        if state is MessageState.PENDING:
            state_now = pb.GROUP_STATE_IN_BACK_OFF
            return facts._replace(state=state_now, attempt=retried.attempt, until_ms=due_ms)
        known = self._queues.acknowledged.get((group, copies.queue))
        if known is None:  # deleted meanwhile
            return facts._replace(retry_id=None)
        placed, _ = await placed_in(self._context, copies, known.floor, copy, due_ms)
        if placed is None or (group, copies.queue) not in self._queues.acknowledged:
            return facts._replace(retry_id=None)  # settled meanwhile
        delivery, now_ms = self._find(queue.topic, group), self._context.time.now_ms()
        standing = delivery.standing(now_ms) if delivery is not None else Standing()
        of_retry = self._facts(delivery, group, placed, standing, now_ms, retried.attempt)
        if of_retry.state == pb.GROUP_STATE_DONE:
            return facts._replace(retry_id=None)
        return of_retry._replace(retry_id=copy, reason=retried.reason, retry_offset=placed.offset)

    def _waiting(self, copies: ReadyQueue, group: str) -> int:
        """Return how many retries of a group are not settled."""
        known = self._queues.acknowledged.get((group, copies.queue))
        left = known.missing_count(known.floor, copies.units) if known is not None else 0
        return left + self._wheel.pending_of(copies.queue)

    async def _copy(self, copies: ReadyQueue, group: str) -> tuple[Id | None, bool]:
        """Return the retry of the message that a group waits for, and whether there is surely no other."""
        if (ahead := self._blocking(copies)) is not None:
            return ahead, True
        if self._groups_left == 0 or self._copies_left <= 0:
            return None, False
        self._groups_left -= 1
        wanted = keys_of(*self._wheel.ids_of(*columns_of(self._message)))
        search = await waiting_retries.search(self._context, copies, group, wanted, self._copies_left)
        self._copies_left -= search.read
        found = search.found.get(int(wanted[0]))
        all_known = search.read - search.unreadable >= self._waiting(copies, group)
        return found, found is not None or all_known

    def _blocking(self, copies: ReadyQueue) -> Id | None:
        """Return the retry that the message's ordering key waits for, if it is the message's own."""
        lane = self._lane()
        retry = self._queues.blocked.retry(copies.queue, lane) if lane else None
        if retry is None:
            return None
        of = origins(self._wheel, *columns_of(retry))
        hour, index = self._wheel.ids_of(*columns_of(self._message))
        return retry if (of.hour[0], of.global_index[0]) == (hour[0], index[0]) else None

    def _lane(self) -> int:
        try:
            units = self._wheel.units(*columns_of(self._message))
        except UnknownMessage:
            return 0
        return int(np.max(unpack(units["topic"], units["tag_mask"])[2]))

    def _told(self, topic: str, group: str, facts: Facts) -> pb.MessageInGroup:
        """Return the facts as they are told."""
        policy = self._context.policy(topic, group)
        letters = "" if policy.dead_letter_topic == NO_TOPIC else policy.dead_letter_topic
        told = pb.MessageInGroup(
            group=group,
            state=facts.state,
            why=life_words.why(facts),
            attempt=facts.attempt,
            consumer=facts.consumer,
            until_ms=facts.until_ms,
            reason=facts.reason,
            consumers=facts.standing.consumers,
            maybe_delivered=facts.maybe_delivered,
            dead_letter_topic=letters,
            retry_offset=facts.retry_offset,
        )
        if facts.before is not None:
            told.before = facts.before
        if facts.retry_id is not None:
            hour, index = self._wheel.ids_of(*columns_of(facts.retry_id))
            told.retry_id = str(MessageId(self._context.config.shard, int(hour[0]), int(index[0])))
        return told


def columns_of(message: Id) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return the columns hour and global index of one message."""
    return np.array([message[0]], np.uint32), np.array([message[1]], np.uint32)


def retried_of(record: bytes | None) -> Retried | None:
    """Return a copy for a retry; None where its record is damaged."""
    try:
        return Retried.FromString(record) if record is not None else None
    except DecodeError:
        return None


def _released_ms(unit: np.void) -> int:
    return int(unit["due_ms"]) + int(unit["released_after_ms"])
