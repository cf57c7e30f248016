"""Redrive: dead letters go back to the groups that gave them up, once more.

What has been redriven is kept as the acknowledged set of a group of its own on
the dead-letter topic, so that a redrive that was cut off goes on where it was.

What a letter says of itself counts only where the log bears it out: it lies in a topic that applying
puts the group's letters in, or has, and the message that it names is there, in that topic, or its hour was
deleted.
Intake lets no producer write into these topics; tarry 0.1.0 did.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError, Message

from tarry.node.delivery.retries import fitting, within_hours
from tarry.node.repair.records import Damage
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.dead_letters import (
    DEAD_LETTERS,
    IDEMPOTENCY_KEY,
    REDRIVE_GROUP,
    RESERVED,
    dead_letter_topic,
)
from tarry.proto.message_id import InvalidMessageId, MessageId
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import Record, Retried
from tarry.proto.tarry_operator_pb2 import RedriveRequest, RedriveResponse
from tarry.replication.state_machine.lanes import queue_of
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.ready_queue import ReadyQueue
from tarry.replication.state_machine.refusal import Refusal
from tarry.replication.state_machine.schedule import DUE_MS_MAX
from tarry.wheel.state import UnknownMessage

GROUP: Final = REDRIVE_GROUP
BATCH: Final = 128
"""Letters read in one turn, some 10 ms: the message that each names is looked up, perhaps in its own hour."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter, and where it goes."""

    offset: int
    topic: str
    group: str
    tag_mask: int
    lane: int
    copy: Retried


def read(record: bytes, offset: int, unit: np.void, request: RedriveRequest) -> Letter | None:
    """Return the letter, None where it is not asked for or is none; what it says is not yet believed."""
    try:
        letter = Record.FromString(record)
    except DecodeError:
        return None
    own = {key: value for key, value in letter.properties.items() if key.startswith(RESERVED)}
    if request.reason and own.get("tarry.reason") != request.reason:
        return None
    if request.tags and set(request.tags).isdisjoint(letter.tags):
        return None
    try:
        origin = MessageId.parse(own["tarry.origin_id"])
        topic, group, due_ms = own["tarry.origin_topic"], own["tarry.group"], int(own["tarry.origin_due_ms"])
    except (KeyError, ValueError, InvalidMessageId):
        return None
    if not 0 <= due_ms <= DUE_MS_MAX:
        return None
    for key in own:
        del letter.properties[key]
    letter.idempotency_key = own.get(IDEMPOTENCY_KEY, "")  # in a copy it counts nowhere
    copy = Retried(
        record=letter.SerializeToString(deterministic=True),
        hour=origin.hour,
        global_index=origin.global_index,
        due_ms=due_ms,
        attempt=1,
        topic=topic,
        group=group,
    )
    return Letter(offset, topic, group, int(unit["tag_mask"]), int(unit["lane"]), copy)


def believed(letter: Letter, queue: ReadyQueue, machine: Machine) -> bool:
    """Return whether applying can have placed the letter in the queue, rather than a producer."""
    if not _takes_letters_of(letter, queue, machine):
        return False
    wheel, origin = machine.wheel, letter.copy
    hour, global_index = wheel.first_places_of(*np.array([[origin.hour], [origin.global_index]], np.uint32))
    try:
        of = wheel.units(hour, global_index)["topic"]
    except UnknownMessage:
        if wheel.known(hour, global_index).all():
            return True  # it was thinned out
        return origin.hour < wheel.floor_hour and not wheel.units_in_hour(origin.hour)
    topic = machine.queues[int(queue_of(of)[0])].topic
    return letter.topic in (topic, dead_letter_topic(topic))


def _takes_letters_of(letter: Letter, queue: ReadyQueue, machine: Machine) -> bool:
    """Return whether letters of a letter's group go to the queue, by their name or a policy, or have."""
    if queue.topic == dead_letter_topic(letter.topic, letter.group):
        return True
    retries = machine.queues.find(letter.topic, letter.group)
    return retries is not None and queue.queue in retries.letters


async def redrive(
    machine: Machine,
    damage: Damage,
    propose: Callable[[Message], Awaitable[Any]],
    now_ms: Callable[[], int],
    request: RedriveRequest,
    bytes_max: int,
) -> AsyncIterator[RedriveResponse | Refusal]:
    """Redrive in batches of bytes_max of records; yield how far it has come, last with ``done``."""
    queue = machine.queues.find(request.topic)
    if queue is None:
        yield Refusal(Reason.TOPIC_UNKNOWN, f"there is no topic {request.topic!r}")
        return
    if not request.topic.startswith(DEAD_LETTERS):
        text = f"topic {request.topic!r} holds no dead letters: name one like {DEAD_LETTERS}GROUP.TOPIC"
        yield Refusal(Reason.TOPIC_INVALID, text)
        return
    if not request.dry_run:
        await propose(log_pb.SubscribeCommand(topic=request.topic, group=GROUP, now_ms=now_ms()))
    progress = RedriveResponse()
    offset = queue.first
    while offset < queue.units and not (request.messages_max and progress.redriven >= request.messages_max):
        offsets = np.arange(offset, min(offset + BATCH, queue.units), dtype=np.uint64)
        units = queue.at(offsets)
        units = units[: within_hours(units["hour"])]
        sizes = machine.wheel.units(units["hour"], units["global_index"])["size"]
        offsets = offsets[: fitting(sizes, bytes_max)]
        offset += len(offsets)
        letters = await _letters(machine, damage, queue, offsets, request)
        if request.messages_max:
            letters = letters[: request.messages_max - progress.redriven]
        progress.redriven += len(letters) if request.dry_run else 0
        for command in [] if request.dry_run else commands(queue, letters, now_ms()):
            if machine.queues.find(command.target_topic, command.target_group) is None:
                continue  # deleted since: these would go to nobody
            if not isinstance(await propose(command), Refusal):  # it was deleted behind the look at it
                progress.redriven += len(command.records)
        progress.looked_at += len(offsets)
        yield progress
        offset = max(offset, queue.first)  # which retention has raised meanwhile
    progress.done = True
    yield progress


async def _letters(
    machine: Machine,
    damage: Damage,
    queue: ReadyQueue,
    offsets: np.ndarray[Any, np.dtype[np.uint64]],
    request: RedriveRequest,
) -> list[Letter]:
    done = machine.queues.acknowledged.get((GROUP, queue.queue))
    if done is not None:
        offsets = offsets[~done.contains(offsets)]
    offsets = offsets[~machine.queues.cancelled.contains(queue.queue, offsets)]
    offsets, units, records = await _kept(damage, queue, offsets)
    letters = [
        read(record, int(offset), unit, request)
        for record, offset, unit in zip(records, offsets, units, strict=True)
        if record is not None
    ]
    return [
        letter
        for letter in letters
        if letter is not None
        and machine.queues.find(letter.topic, letter.group) is not None
        and believed(letter, queue, machine)
    ]


async def _kept(
    damage: Damage, queue: ReadyQueue, offsets: np.ndarray[Any, np.dtype[np.uint64]]
) -> tuple[np.ndarray[Any, np.dtype[np.uint64]], np.ndarray[Any, np.dtype[np.void]], list[bytes | None]]:
    """Return offsets, units and records but of what retention trims while they are read."""
    while True:
        first = queue.first
        offsets = offsets[offsets >= np.uint64(first)]
        units = queue.at(offsets)
        try:
            return offsets, units, await damage.read(units["hour"], units["global_index"])
        except UnknownMessage:
            if queue.first == first:
                raise


def commands(queue: ReadyQueue, letters: list[Letter], now_ms: int) -> list[log_pb.RetryCommand]:
    """Return a command for each group that letters go to."""
    targets = sorted({(letter.topic, letter.group) for letter in letters})
    result = []
    for topic, group in targets:
        own = [letter for letter in letters if (letter.topic, letter.group) == (topic, group)]
        result.append(
            log_pb.RetryCommand(
                group=GROUP,
                queue=queue.queue,
                offset=np.array([letter.offset for letter in own], dtype="<u8").tobytes(),
                due_ms=np.full(len(own), now_ms, dtype="<i8").tobytes(),
                tag_mask=np.array([letter.tag_mask for letter in own], dtype="<u8").tobytes(),
                lane=np.array([letter.lane for letter in own], dtype="<u4").tobytes(),
                records=[letter.copy.SerializeToString() for letter in own],
                target_topic=topic,
                target_group=group,
                now_ms=now_ms,
            )
        )
    return result
