"""Counts of what happened to messages, by topic and by group, for monitoring.

    entry applied, batch delivered ──► Traffic ◄── a page of metrics reads

Counted by the node that leads when it happens, so that a sum over the nodes has everything once at most;
what is applied while nobody leads, or again after a restart, is not counted. Each call is for a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from tarry.node.config import MetricsSettings
from tarry.node.ledger.ledger import DeliveredBatch
from tarry.node.metrics.by_traffic import ByTraffic
from tarry.node.metrics.lateness import Lateness
from tarry.proto.dead_letters import REDRIVE_GROUP
from tarry.proto.ledger.schema import Kind
from tarry.replication.state_machine.events import Event
from tarry.replication.state_machine.queues import Queues
from tarry.wheel.columns import groups

GroupName: TypeAlias = tuple[str, str]
"""Topic, group."""
OTHER: Final = "other"
"""Name of the topics, and of the groups, that have no counts of their own."""


@dataclass(slots=True)
class TopicTraffic:
    """Messages of one topic."""

    scheduled: int = 0
    released: int = 0
    cancelled: int = 0
    expired: int = 0
    release: Lateness = field(default_factory=Lateness)
    """Of release, after the due time."""
    delivery: Lateness = field(default_factory=Lateness)
    """Of deliveries from the topic's queue: no retries."""
    acknowledgement: Lateness = field(default_factory=Lateness)
    """Of the acknowledgement of such a delivery; of what a group's filter leaves out, too."""


@dataclass(slots=True)
class GroupTraffic:
    """Messages of one group of a topic."""

    delivered: int = 0
    redelivered: int = 0
    maybe_repeated: int = 0
    acknowledged: int = 0
    nacked: int = 0
    retried: int = 0
    dead: int = 0


RENEWAL_S: Final = 60.0


class Traffic:
    """Counts of one node since its start; none where no port for metrics is configured."""

    def __init__(self, settings: MetricsSettings, queues_max: int, leads: Callable[[], bool]) -> None:
        """Take ``leads``, which tells whether this node leads."""
        self.wanted = bool(settings.listen)
        self._leads = leads
        self._renewed_s = 0.0
        topics_max, groups_max = min(settings.topics_max, queues_max), min(settings.groups_max, queues_max)
        self.topics = ByTraffic[str, TopicTraffic](topics_max, queues_max, OTHER, TopicTraffic)
        self.groups = ByTraffic[GroupName, GroupTraffic](groups_max, queues_max, (OTHER, OTHER), GroupTraffic)

    def applied(self, events: Sequence[Event], queues: Queues, now_ms: int) -> None:
        """Count the events of an entry that is applied now: until then a release has been late."""
        if not self.wanted or not events or not self._leads():
            return
        for event in events:
            match event.kind:
                case Kind.RELEASED:
                    self.released(event, queues, now_ms)
                case Kind.ACKED:
                    self.acknowledged(event, queues, now_ms)
                case kind:
                    count = _COUNTS.get(kind)
                    if count is not None:
                        count(self, event, queues)

    def delivered(
        self, batch: DeliveredBatch, topic: str, group: str, now_ms: int, delay_ms: int = 0
    ) -> None:
        """Count a batch that a consumer was sent, all of the topic's queue or all of the group's.

        It is late behind its due times and the group's delay.
        """
        if not self.wanted:
            return
        units, n = batch.units, len(batch.units)
        of_group = self.groups.of((topic, group), n)
        of_group.delivered += n
        of_group.maybe_repeated += int(np.count_nonzero(units["maybe_duplicate"]))
        of_group.redelivered += int(np.count_nonzero(batch.attempt > 1))
        if batch.order_key is not None:  # else they are retries, and dead letters that were returned
            self.topics.of(topic, n).delivery.add(now_ms - delay_ms, units["due_ms"])

    def nacked(self, topic: str, group: str, n: int) -> None:
        """Count messages that a consumer gave back."""
        if self.wanted:
            self.groups.of((topic, group), n).nacked += n

    def renew(self, now_s: float) -> Iterator[None]:
        """Let the busiest topics and groups have their own counts, if it is time; yield after each part."""
        if now_s < self._renewed_s + RENEWAL_S:
            return
        self._renewed_s = now_s
        for names in (self.topics, self.groups):
            names.renew()
            yield

    # -- of events

    def scheduled(self, event: Event, queues: Queues) -> None:
        queue = event.queue
        if isinstance(queue, int):
            self.topics.of(queues[queue].topic, event.n).scheduled += event.n
            return
        for number, rows in groups(queue):
            n = len(queue[rows])
            self.topics.of(queues[number].topic, n).scheduled += n

    def released(self, event: Event, queues: Queues, now_ms: int) -> None:
        assert isinstance(event.queue, int)
        queue = queues[event.queue]
        if not queue.group and event.due_ms is not None:  # else it is a retry's copy, released for one group
            topic = self.topics.of(queue.topic, event.n)
            topic.released += event.n
            topic.release.add(now_ms, event.due_ms)

    def acknowledged(self, event: Event, queues: Queues, now_ms: int) -> None:
        assert isinstance(event.queue, int)
        queue = queues[event.queue]
        if event.group == REDRIVE_GROUP:  # nobody's: dead letters go back to the group that gave them up
            return
        self.groups.of((queue.topic, event.group or queue.group), event.n).acknowledged += event.n
        if not queue.group and event.due_ms is not None:
            delay_ms = queues.delay_ms(queue.topic, event.group or "")
            self.topics.of(queue.topic, 0).acknowledgement.add(now_ms - delay_ms, event.due_ms)

    def retried(self, event: Event, queues: Queues) -> None:
        if event.detail != "REDRIVEN":
            self._of_group(event, queues).retried += event.n

    def dead(self, event: Event, queues: Queues) -> None:
        self._of_group(event, queues).dead += event.n

    def cancelled(self, event: Event, queues: Queues) -> None:
        if not self._is_copy(event, queues):
            self._of_topic(event, queues).cancelled += event.n

    def expired(self, event: Event, queues: Queues) -> None:
        if event.offset is not None or not self._is_copy(event, queues):
            self._of_topic(event, queues).expired += event.n

    def _is_copy(self, event: Event, queues: Queues) -> bool:
        assert isinstance(event.queue, int)
        return event.queue >= 0 and bool(queues[event.queue].group)

    def _of_topic(self, event: Event, queues: Queues) -> TopicTraffic:
        assert isinstance(event.queue, int)
        return self.topics.of(event.topic or queues[event.queue].topic, event.n)

    def _of_group(self, event: Event, queues: Queues) -> GroupTraffic:
        assert isinstance(event.queue, int)
        queue = queues[event.queue] if event.queue >= 0 else None
        topic = event.topic or (queue.topic if queue else "")
        return self.groups.of((topic, event.group or (queue.group if queue else "")), event.n)


_COUNTS: Final[dict[Kind, Callable[[Traffic, Event, Queues], None]]] = {
    Kind.SCHEDULED: Traffic.scheduled,
    Kind.RETRIED: Traffic.retried,
    Kind.DEAD: Traffic.dead,
    Kind.CANCELLED: Traffic.cancelled,
    Kind.EXPIRED: Traffic.expired,
}
