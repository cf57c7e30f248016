"""Status of topics and groups for operators, built in pieces: there may be 20,000 of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

from tarry.node.assembly import Core
from tarry.node.config import Dispatch
from tarry.node.defaults import dispatch
from tarry.node.delivery.consumer_table import Shown
from tarry.node.delivery.delay import delayed
from tarry.node.delivery.offset_pieces import Pieces
from tarry.node.leader.group_expiry import expiry_ms
from tarry.proto import tarry_operator_pb2 as pb
from tarry.replication.state_machine.acknowledgements import Acknowledgements
from tarry.replication.state_machine.ready_queue import ReadyQueue, UnitsDamaged

PIECE_QUEUES: Final = 500
"""Topics and groups told of in one turn of the event loop: some 5 ms."""
DELAYED_QUEUES: Final = 40
"""What a group with a delay counts for in that: its queue is searched, in some 0.4 ms."""


class _Lags(NamedTuple):
    """Late messages of each topic, by the number of its queue."""

    overdue: Mapping[int, tuple[int, int]]
    """Number of messages, and ms since the first was due."""
    lateness: Mapping[int, pb.Lateness]


class TopicStatuses:
    """Builds the status of topics, some a turn: one may be newer than another by some turns."""

    def __init__(self, core: Core) -> None:
        self._machine, self._time, self._leadership = core.machine, core.time, core.leadership
        self._configured = core.config.dispatch
        self._settings, self._settings_of = core.config.dispatch, pb.ClusterSettings()
        self._pieces = Pieces()

    async def all(self, sees: Callable[[str], bool]) -> bytes:
        """Return a ClusterStatusResponse with nothing but the topics that the caller may see, serialized."""
        topics = [queue for queue in self._machine.queues if not queue.group]
        steps, parts = map(_serialized, self._steps(topics, sees)), []
        while (part := await self._pieces.alone(partial(next, steps, None))) is not None:
            parts.append(part)
        return b"".join(parts)

    async def one(self, queue: ReadyQueue) -> pb.TopicStatus:
        """Return a topic's status."""
        steps = self._steps([queue], lambda topic: True)
        told = next(steps)
        while not told:
            told = await self._pieces.alone(partial(next, steps))
        return told[0]

    def group(self, queue: ReadyQueue, group: str) -> pb.GroupStatus | None:
        """Return a group's status; None where the topic has none of that name."""
        topic = pb.TopicStatus()
        self._add(topic, queue, group)
        return topic.groups[0] if topic.groups else None

    async def consumers(self, topic: str, group: str) -> Shown:
        """Return a group's consumers at this leader, the first by name, and how many more there are."""
        delivery = self._leadership.delivery
        at_leader = delivery.find(topic, group) if delivery else None
        if at_leader is None:  # nobody consumes
            return [], 0
        steps = at_leader.shown()
        shown: Shown | None = None
        while shown is None:
            shown = await self._pieces.alone(partial(next, steps))
        return shown

    def _steps(
        self, queues: Iterable[ReadyQueue], sees: Callable[[str], bool]
    ) -> Iterator[list[pb.TopicStatus]]:
        """Yield, for each piece of work, the topics that are told of completely; at least one."""
        done: list[pb.TopicStatus] = []
        room, lateness = PIECE_QUEUES, self._leadership.lateness
        overdue = self._overdue()
        yield []
        now_ms = self._time.now_ms()
        lags = _Lags(overdue, {} if lateness is None else lateness.by_topic(now_ms))
        yield []
        for queue in queues:
            topic = self._topic(queue, lags)
            seen = sees(queue.topic)
            for group in self._machine.queues.groups_of(queue.queue) if seen else ():
                self._add(topic, queue, group)
                room -= DELAYED_QUEUES if topic.groups and topic.groups[-1].delay_ms else 1
                if room <= 0:
                    yield done
                    done, room = [], PIECE_QUEUES
            done += [topic] if seen else []
            room -= 1
            if room <= 0:
                yield done
                done, room = [], PIECE_QUEUES
        yield done

    def _overdue(self) -> dict[int, tuple[int, int]]:
        """Look once at what is overdue: some 5 ms where that is much."""
        now_ms = self._time.now_ms()
        topics, counts, first_ms = self._machine.wheel.due_topics(now_ms)
        overdue = zip(counts.tolist(), (now_ms - first_ms).tolist(), strict=True)
        return dict(zip(topics.tolist(), overdue, strict=True))

    def _topic(self, queue: ReadyQueue, lags: _Lags) -> pb.TopicStatus:
        now_ms = self._time.now_ms()
        overdue, oldest_overdue_ms = lags.overdue.get(queue.queue, (0, 0))
        held_back = queue.units - max(queue.first, queue.pace.opened(now_ms, queue.units))
        return pb.TopicStatus(
            topic=queue.topic,
            released=queue.units,
            first_offset=queue.first,
            pending=self._machine.wheel.pending_of(queue.queue),
            held_back=max(0, held_back),
            held_until_ms=queue.pace.opens_ms(queue.units - 1) if held_back > 0 else 0,
            misfires_dropped=queue.misfires_dropped,
            lateness=lags.lateness.get(queue.queue),
            overdue=overdue,
            oldest_overdue_ms=oldest_overdue_ms,
        )

    def _dispatch(self) -> Dispatch:
        """Return the settings that count, worked out anew where the cluster's are others by now."""
        defaults = self._machine.queues.defaults
        if defaults.settings is not self._settings_of:
            self._settings, self._settings_of = dispatch(defaults, self._configured), defaults.settings
        return self._settings

    def _add(self, topic: pb.TopicStatus, queue: ReadyQueue, group: str) -> None:
        queues, delivery = self._machine.queues, self._leadership.delivery
        main, retry = queues.acknowledged.get((group, queue.queue)), queues.find(queue.topic, group)
        if main is None or retry is None:  # deleted meanwhile
            return
        done = queues.acknowledged[group, retry.queue]
        at_leader = delivery.find(queue.topic, group) if delivery else None
        delay_ms = queues.delay_ms(queue.topic, group)
        retention, use = self._leadership.retention, queues.uses.of(queue.topic, group)
        topic.groups.add(
            group=group,
            floor=main.floor,
            acked_above_floor=len(main.acked),
            retrying=retry.units - done.floor - len(done.acked),
            consumers=len(at_leader.consumers) if at_leader else 0,
            in_hand=sum(feed.in_flight_messages for feed in at_leader.feeds.values()) if at_leader else 0,
            credit=sum(consumer.free_credit for consumer in at_leader.consumers) if at_leader else 0,
            backing_off=self._machine.wheel.pending_of(retry.queue),
            held_bytes=retention.bytes.from_offset(queue.queue, main.floor)
            + retention.bytes.from_offset(retry.queue, done.floor)
            if retention
            else 0,
            used_ms=use.used_ms,
            expiry_ms=expiry_ms(use, self._dispatch()),
            expired=use.expired,
            dropped=use.dropped,
            delayed=self._delayed(queue, main, delay_ms),
            delay_ms=delay_ms,
        )

    def _delayed(self, queue: ReadyQueue, main: Acknowledgements, delay_ms: int) -> int:
        try:
            return delayed(queue, main, delay_ms, self._time.now_ms())
        except UnitsDamaged:  # told elsewhere, and mended
            return 0


def _serialized(topics: list[pb.TopicStatus]) -> bytes:
    return pb.ClusterStatusResponse(topics=topics).SerializeToString()
