"""Delivery at the leader: all groups, as long as it leads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Final

from tarry.node.delivery import waiting_retries
from tarry.node.delivery.cancels import Cancels
from tarry.node.delivery.context import Context
from tarry.node.delivery.failover_cursors import LEASES_NAMED_MAX
from tarry.node.delivery.feed import Feed
from tarry.node.delivery.group import TURN_ENDS_MAX, GroupDelivery
from tarry.node.delivery.inherited import Inherited
from tarry.node.delivery.lives import Lives
from tarry.node.delivery.many_topics import ManyTopics
from tarry.node.delivery.offset_search import Keys
from tarry.node.delivery.turn_share import LOW, TurnShare
from tarry.proto.reasons import Reason
from tarry.replication.state_machine.refusal import Refusal

GROUPS_SERIALIZED_MAX: Final = 500
"""Changed groups whose cursors a heartbeat has anew, at some 0.015 ms each; others wait for the next."""

TURN_GROUPS_SERIALIZED_MAX: Final = 500
"""As many leave no room for deliveries in their turn."""

TURN_GROUPS_ENDED_MAX: Final = 500

TURN_GROUPS_STOPPED_MAX: Final = 10_000
"""More are stopped in a turn of their own, after the one that tells their cursors, before their calls end."""

CLOSE_LOOK_MS: Final = 1_000
"""Interval at which all groups are noted for the search for those that nobody uses any more."""

CLOSE_LOOKS_MAX: Final = 500
"""Of these, looked at with one heartbeat, at 0.002 ms each, and closed at some 0.01 ms."""


class Delivery:
    """Delivers released messages to consumers; made anew for each leadership."""

    def __init__(self, context: Context, term: int, inherited: Inherited) -> None:
        self.term = term
        self._context = context
        self._inherited = inherited
        self._begun_ms = self._closes_at_ms = context.time.now_ms()
        self._to_look_at: list[GroupDelivery] = []  # whether it is over
        self._groups: dict[tuple[str, str], GroupDelivery] = {}
        self._by_queue: dict[int, dict[GroupDelivery, None]] = {}  # in the order of their opening
        self._changed: dict[GroupDelivery, None] = {}  # since they were sent, in the order of their changes
        self._uncovered: dict[GroupDelivery, None] = {}  # those that have delivered more than was reserved
        self.several: dict[ManyTopics, None] = {}
        """Streams with several topics."""
        self._queues = len(context.machine.queues)
        self._queues_came = asyncio.Event()
        self._reserves = True  # the heartbeat before reserved what may be delivered
        self.cancels = Cancels(
            context, self._feed, self._feeds_on, inherited.end, lambda queue: self.released((queue,))
        )
        self.lives = Lives(context, self.find, inherited.end)

    def _feed(self, group: str, queue: int) -> Feed | None:
        known = self._groups.get((self._context.machine.queues[queue].topic, group))
        return None if known is None else known.feeds[queue]

    def _feeds_on(self, queue: int) -> list[Feed]:
        return [group.feeds[queue] for group in self._by_queue.get(queue, ())]

    @property
    def consumers(self) -> int:
        """Number of open consumer streams."""
        alone = sum(len(group.consumers) - len(group.seats) for group in self._groups.values())
        return alone + len(self.several)

    @property
    def turn(self) -> TurnShare:
        """The share of deliveries in a turn of the event loop."""
        return self._context.turn

    def note_queues(self) -> None:
        """Wake those that wait for queues, if there are new ones."""
        if len(self._context.machine.queues) > self._queues:
            self._queues = len(self._context.machine.queues)
            came, self._queues_came = self._queues_came, asyncio.Event()
            came.set()

    async def queues_beyond(self, number: int) -> None:
        """Return once there is a queue of that number."""
        while len(self._context.machine.queues) <= number:
            await self._queues_came.wait()

    def now_ms(self) -> int:
        """Return cluster time."""
        return self._context.time.now_ms()

    def group(self, topic: str, group: str, queue: int, retry_queue: int) -> GroupDelivery:
        """Return the group of the topic, opened if it is not.

        Raises UnitsDamaged: then it is not, and what is known of it from the leader before is kept.
        """
        known = self._groups.get((topic, group))
        if known is None:
            queues = (queue, retry_queue)
            known = GroupDelivery(self._context, self.term, topic, group, queues, self._note_change)
            for number in (queue, retry_queue):
                cursor = self._inherited.find((group, number))
                if cursor is not None:
                    known.inherit(cursor, self._begun_ms)
            for number in (queue, retry_queue):  # the queues could be read
                self._by_queue.setdefault(number, {})[known] = None
                self._inherited.forget((group, number))
            self._groups[topic, group] = known
            known.serialize_cursors(None, self._leases_max())  # inherited; the next heartbeat reserves
            self._note_change(known)
            self._context.beat()
        return known

    def moved(self, topic: str, group: str) -> None:
        """Begin a group anew that is at another offset, or end one that is gone."""
        known = self._groups.get((topic, group))
        if known is None or known.begin_again():
            return
        known.end(Refusal(Reason.GROUP_UNKNOWN, f"group {group!r} of topic {topic!r} has been deleted"))
        self._forget(known)

    def trimmed(self, topic: str, group: str) -> None:
        """Let a group, if it is open, forget what its queues have lost before it had that."""
        if (known := self._groups.get((topic, group))) is not None:
            known.forget_trimmed()

    def find(self, topic: str, group: str) -> GroupDelivery | None:
        """Return the group of the topic if it is open."""
        return self._groups.get((topic, group))

    async def waiting_copies(self, topic: str, group: str, wanted: Keys) -> waiting_retries.Found:
        """Return the copies of messages that wait for their retry in a group. Raises UnitsDamaged."""
        copies = self._context.machine.queues.find(topic, group) if group else None
        return {} if copies is None else await waiting_retries.find(self._context, copies, group, wanted)

    def released(self, queues: Iterable[int]) -> None:
        """Deliver what is due of what was just released to these queues."""
        for queue in queues:
            for group in self._by_queue.get(queue, ()):
                group.pump()

    def look(self, now_ms: int) -> None:
        """Deliver what is due by now: cluster time may have run ahead of the groups' timers."""
        for group in self._groups.values():
            if group.wakes_at_ms is not None and now_ms >= group.wakes_at_ms:
                group.pump()
        closes = now_ms >= self._closes_at_ms
        # else each heartbeat tells of every group that there ever was
        self._inherited.forget_acknowledged(self._context.machine.queues.acknowledged, again=closes)
        if closes:
            self._closes_at_ms = now_ms + CLOSE_LOOK_MS
            self._to_look_at = self._to_look_at or list(self._groups.values())
        self._close(now_ms)

    def _close(self, now_ms: int) -> None:
        looked_at = self._to_look_at[-CLOSE_LOOKS_MAX:]
        del self._to_look_at[-CLOSE_LOOKS_MAX:]
        for group in looked_at:
            if self._groups.get((group.topic, group.group)) is group and group.is_over(now_ms):
                group.end(Refusal(Reason.NO_LEADER, "nobody has used the group for a while"))
                self._forget(group)

    def _forget(self, group: GroupDelivery) -> None:
        del self._groups[group.topic, group.group]
        self._changed.pop(group, None)
        self._uncovered.pop(group, None)
        for number in group.feeds:
            del self._by_queue[number][group]

    def pump(self) -> None:
        """Deliver whatever is due, to every group."""
        for group in self._groups.values():
            group.pump()

    def cursors(self, sent_s: float | None) -> bytes:
        """Return the cursors of all groups, a part of a serialized DispatchState, for a heartbeat sent then.

        None: nothing more is delivered. Of the groups that have changed, ``GROUPS_SERIALIZED_MAX`` are
        serialized anew, in the order of their changes; the others are repeated as they were sent before,
        which reserved what they have delivered since. Where it did not, as with no other voter, they are
        serialized anew nevertheless.
        """
        if self._reserves != (sent_s is not None):
            self._reserves = sent_s is not None
            self._changed.update(dict.fromkeys(self._groups.values()))
        leases_max, room = self._leases_max(), max(0, GROUPS_SERIALIZED_MAX - len(self._uncovered))
        groups = self._uncovered | dict.fromkeys(islice(self._changed, room))
        for group in groups:
            group.serialize_cursors(sent_s, leases_max)
            del self._changed[group]
        self._context.turn.spend(len(groups) / TURN_GROUPS_SERIALIZED_MAX)
        self._uncovered.clear()
        if self._changed:
            self._context.stir()
        return b"".join((self._inherited.cursors(), *map(attrgetter("cursors"), self._groups.values())))

    @property
    def told_all(self) -> bool:
        """True if the last heartbeat had the present cursors of all groups."""
        return not self._changed

    def _note_change(self, group: GroupDelivery) -> None:
        self._changed[group] = None
        if not group.is_covered():
            self._uncovered[group] = None

    def _leases_max(self) -> int:
        return LEASES_NAMED_MAX // max(1, len(self._groups))

    async def pause(self) -> None:
        """Deliver nothing more; return in a turn with room for the end."""
        self._context.over.set()
        while self._context.turn.left < LOW:  # noqa: ASYNC110 - turns are counted, no event waited for
            await asyncio.sleep(0)

    def end(self, refusal: Refusal) -> None:
        """End all consumer streams: leadership is gone, or the node stops."""
        self._context.over.set()
        turn, groups = self._context.turn, list(self._groups.values())
        turn.spend(len(groups) / TURN_GROUPS_STOPPED_MAX)
        turn.do(partial(self._stop, groups, refusal))

    def _stop(self, groups: list[GroupDelivery], refusal: Refusal) -> None:
        turn = self._context.turn
        for group in groups:
            group.stop(refusal)
        turn.spend(len(groups) / TURN_GROUPS_STOPPED_MAX)
        turn.do(partial(self._end_calls, groups, refusal))

    def _end_calls(self, groups: list[GroupDelivery], refusal: Refusal) -> None:
        """End the calls of each group, and free it, TURN_GROUPS_ENDED_MAX in each turn."""
        turn = self._context.turn
        while groups and turn.left > 0:
            turn.spend(1 / TURN_GROUPS_ENDED_MAX)
            groups.pop().end_calls(refusal)
        if groups:
            turn.do(partial(self._end_calls, groups, refusal))
        else:
            turn.do(partial(self._end_several, list(self.several), refusal))

    def _end_several(self, streams: list[ManyTopics], refusal: Refusal) -> None:
        """End the streams with several topics of which there is none: no group has ended these."""
        turn = self._context.turn
        while streams and turn.left > 0:
            stream = streams.pop().stream
            turn.spend(1 / TURN_ENDS_MAX if stream.ended is None else 0)
            stream.end(refusal)
        if streams:
            turn.do(partial(self._end_several, streams, refusal))
