"""Readings of topics and groups for one page of metrics, taken in pieces: there may be 20,000 of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Final

from tarry.node.assembly import Core
from tarry.node.metrics.traffic import OTHER, GroupName
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
    traffic, queues = core.traffic, core.machine.queues
    for renewed in traffic.renew(core.holds.now_s()):
        if renewed:
            await asyncio.sleep(0)
    pending, groups = dict[str, int](), dict[GroupName, GroupReading]()
    left = PIECE
    for queue in [queue for queue in queues if not queue.group]:
        traffic.topics.of(queue.topic, 0)
        topic = queue.topic if queue.topic in traffic.topics else OTHER
        pending[topic] = pending.get(topic, 0) + core.machine.wheel.pending_of(queue.queue)
        for group in queues.groups_of(queue.queue):
            if group == REDRIVE_GROUP:
                continue
            name = queue.topic, group
            reading = _group(core, queue, group)
            traffic.groups.of(name, 0)
            if name not in traffic.groups:
                name = OTHER, OTHER
                reading = _sum((groups.get(name, GroupReading()), reading))
            groups[name] = reading
            left -= 1
            if left <= 0:
                await asyncio.sleep(0)
                left = PIECE
        left -= 1
        if left <= 0:
            await asyncio.sleep(0)
            left = PIECE
    return Readings(pending, groups, core.leadership.delivery is not None)


def _group(core: Core, queue: ReadyQueue, group: str) -> GroupReading:
    queues, leadership = core.machine.queues, core.leadership
    main, retry = queues.acknowledged.get((group, queue.queue)), queues.find(queue.topic, group)
    if main is None or retry is None:  # deleted meanwhile
        return GroupReading()
    done = queues.acknowledged[group, retry.queue]
    open_group = leadership.delivery.find(queue.topic, group) if leadership.delivery else None
    retention = leadership.retention
    held_bytes = 0
    if retention is not None:
        held_bytes = retention.bytes.from_offset(queue.queue, main.floor)
        held_bytes += retention.bytes.from_offset(retry.queue, done.floor)
    return GroupReading(
        ready=queue.units - main.floor - len(main.acked) + retry.units - done.floor - len(done.acked),
        in_flight=sum(feed.in_flight_messages for feed in open_group.feeds.values()) if open_group else 0,
        back_off=core.machine.wheel.pending_of(retry.queue),
        held_bytes=held_bytes,
        consumers=len(open_group.consumers) if open_group else 0,
        credit=sum(consumer.credit for consumer in open_group.consumers) if open_group else 0,
    )


def _sum(readings: Iterable[GroupReading]) -> GroupReading:
    some = list(readings)
    return GroupReading(*(sum(map(attrgetter(one.name), some)) for one in fields(GroupReading)))
