"""Readings of topics and groups for one page of metrics, taken in pieces: there may be 20,000 of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Final

from tarry.node.assembly import Core
from tarry.node.metrics.traffic import OTHER, GroupName
from tarry.node.services.topic_status import DELAYED_QUEUES, TopicStatuses
from tarry.proto.dead_letters import REDRIVE_GROUP
from tarry.replication.state_machine.ready_queue import ReadyQueue

PIECE: Final = 200
"""Topics and groups read in one turn of the event loop: some 2 ms."""


@dataclass(frozen=True, slots=True)
class GroupReading:
    """Messages of one group of a topic, or of several together."""

    ready: int = 0
    in_flight: int = 0
    back_off: int = 0
    held_bytes: int = 0
    consumers: int = 0
    credit: int = 0
    delayed: int = 0


@dataclass(frozen=True, slots=True)
class Readings:
    """Figures of each topic and group."""

    pending: dict[str, int]
    """By topic."""
    groups: dict[GroupName, GroupReading]
    delivers: bool
    """Whether this node does, so that it knows of consumers and of what they have."""


async def read(core: Core) -> Readings:
    """Read all topics and groups; beyond those with names of their own, all together."""
    for _ in core.traffic.renew(core.holds.now_s()):
        await asyncio.sleep(0)
    readings = Readings({}, {}, core.leadership.delivery is not None)
    room = PIECE
    for read_of in _steps(core, readings):
        room -= read_of
        if room <= 0:
            await asyncio.sleep(0)
            room = PIECE
    return readings


def _steps(core: Core, readings: Readings) -> Iterator[int]:
    """Add the readings of a topic or group with each step; yield for how many of them it takes as long."""
    traffic, queues, statuses = core.traffic, core.machine.queues, TopicStatuses(core)
    pending, groups = readings.pending, readings.groups
    for queue in [queue for queue in queues if not queue.group]:
        traffic.topics.of(queue.topic, 0)
        topic = queue.topic if queue.topic in traffic.topics else OTHER
        pending[topic] = pending.get(topic, 0) + core.machine.wheel.pending_of(queue.queue)
        yield 1
        for group in queues.groups_of(queue.queue):
            if group == REDRIVE_GROUP:
                continue
            name = queue.topic, group
            reading = _group(statuses, queue, group)
            traffic.groups.of(name, 0)
            if name not in traffic.groups:
                name = OTHER, OTHER
                reading = _sum((groups.get(name, GroupReading()), reading))
            groups[name] = reading
            yield DELAYED_QUEUES if queues.delay_ms(queue.topic, group) else 1


def _group(statuses: TopicStatuses, queue: ReadyQueue, group: str) -> GroupReading:
    status = statuses.group(queue, group)
    if status is None:  # deleted meanwhile
        return GroupReading()
    return GroupReading(
        ready=queue.units - status.floor - status.acked_above_floor - status.delayed + status.retrying,
        delayed=status.delayed,
        in_flight=status.in_hand,
        back_off=status.backing_off,
        held_bytes=status.held_bytes,
        consumers=status.consumers,
        credit=status.credit,
    )


def _sum(readings: Iterable[GroupReading]) -> GroupReading:
    some = list(readings)
    return GroupReading(*(sum(map(attrgetter(one.name), some)) for one in fields(GroupReading)))
