"""Events that have to be looked up: whose copy a retry is, where a group stands now."""

from __future__ import annotations

from functools import partial
from itertools import repeat
from typing import Final, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError, Message
from numpy.typing import NDArray

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.ledger.schema import GroupMove, Kind
from tarry.proto.tarry_message_pb2 import Retried, RetryReason
from tarry.replication.state_machine.events import Event
from tarry.replication.state_machine.lanes import queue_of
from tarry.replication.state_machine.queues import Queues
from tarry.replication.state_machine.ready_queue import UnitsDamaged
from tarry.wheel.columns import groups
from tarry.wheel.state import HOUR_MS, Cancellation, UnknownMessage
from tarry.wheel.wheel import Wheel

INT32_MAX: Final = 2**31 - 1
"""The greatest hour and attempt that a ledger's column holds."""
WHOLE_BYTES_MAX: Final = 1 << 10
"""Copies up to so large are read whole; of larger ones what names the message, behind its record."""
BEHIND_BYTES_MAX: Final = 4 << 10
"""More than a copy has behind the record: numbers, and the names of a topic and a group."""
_HEAD_BYTES: Final = 6
"""A tag, and a length of up to 2^35."""


class Origins(NamedTuple):
    """The messages that copies in a retry queue stand for, and the attempt each copy is; shape (n,)."""

    hour: NDArray[np.int32]  # -1: not known, for the record is damaged or gone
    global_index: NDArray[np.int64]
    attempt: NDArray[np.int32]


def origins(wheel: Wheel, hour: NDArray[np.uint32], global_index: NDArray[np.uint32]) -> Origins:
    """Read which messages copies for a retry are of.

    Small copies are proven by their checksums. A large one, damaged so that it still reads as a copy, may be
    taken for another message's; only the ledger of this replica then says so, which reconciling finds.
    """
    try:
        large = wheel.units(hour, global_index)["size"] > WHOLE_BYTES_MAX
    except UnknownMessage:
        return origins_in([b""] * len(hour))
    records = np.empty(len(hour), object)
    for chosen, read in ((~large, wheel.read), (large, partial(_behind_records, wheel))):
        if chosen.any():
            records[chosen] = read(hour[chosen], global_index[chosen])
    return origins_in([record or b"" for record in records.tolist()])


def _behind_records(wheel: Wheel, hour: NDArray[np.uint32], global_index: NDArray[np.uint32]) -> list[bytes]:
    """Return what copies have behind their first field, the whole record of the message."""
    begin = np.zeros(len(hour), np.int64)
    heads = wheel.parts(hour, global_index, begin, _HEAD_BYTES)
    return wheel.parts(hour, global_index, _ends_of_first(heads), BEHIND_BYTES_MAX)


def _ends_of_first(heads: list[bytes]) -> NDArray[np.int64]:
    """Return where the first field ends in messages that begin so, shape (n,), its length as they tell it."""
    whole = b"".join(map(bytes.ljust, heads, repeat(_HEAD_BYTES), repeat(b"\0")))
    digits = np.frombuffer(whole, np.uint8).reshape(-1, _HEAD_BYTES)[:, 1:].astype(np.int64)
    goes_on = np.logical_and.accumulate(digits >= 0x80, axis=1)
    counts = np.ones_like(digits)
    counts[:, 1:] = goes_on[:, :-1]
    length = (((digits & 0x7F) << (7 * np.arange(_HEAD_BYTES - 1))) * counts).sum(axis=1)
    ends: NDArray[np.int64] = 1 + counts.sum(axis=1) + length
    return ends


def origins_in(records: list[bytes]) -> Origins:
    """Return the same from the copies' records; of an empty one nothing is known."""
    copies = [_copy(record) for record in records]
    hour = np.array([copy.hour for copy in copies], dtype=np.int64)
    attempt = np.array([copy.attempt for copy in copies], dtype=np.int64)
    known = (attempt > 0) & (hour <= INT32_MAX)
    return Origins(
        np.where(known, hour, -1).astype(np.int32),
        np.array([copy.global_index for copy in copies], dtype=np.int64),
        np.minimum(attempt, INT32_MAX).astype(np.int32),
    )


def settled(
    kind: Kind, wheel: Wheel, queues: Queues, queue: int, group: str, offset: NDArray[np.uint64], at_ms: int
) -> Event:
    """Return that the group is done with offsets of a queue, its own retry queue or the topic's."""
    try:
        units = queues[queue].at(offset)
    except UnitsDamaged as damage:
        queues.damaged.append(damage)  # an event is not worth a replica
        of = origins_in([b""] * len(offset))
        where = of.hour, of.global_index
        return Event(kind, len(offset), at_ms, queue, None, group, *where, offset=offset, by_id=True)
    hour, global_index, attempt = units["hour"], units["global_index"], np.ones(len(offset), np.int32)
    if queues[queue].group:
        hour, global_index, attempt = origins(wheel, hour, global_index)
    return Event(
        kind,
        len(offset),
        at_ms,
        queue,
        group=group,
        hour=hour,
        global_index=global_index,
        due_ms=units["due_ms"],
        offset=offset,
        attempt=attempt,
        by_id=bool(queues[queue].group),
    )


def of_ids(wheel: Wheel, queues: Queues, events: list[Event]) -> list[Event]:
    """Return events of places as events of these messages' ids; those of copies stay, for `of_origins`."""
    for number, event in enumerate(events) if wheel.ids_differ else ():
        if event.by_id or event.hour is None or event.global_index is None or _is_of_copies(queues, event):
            continue
        hour, global_index = wheel.ids_of(event.hour, event.global_index)
        events[number] = event._replace(hour=hour, global_index=global_index, by_id=True)
    return events


def of_origins(wheel: Wheel, queues: Queues, events: list[Event]) -> list[Event]:
    """Return what came due for retry queues as events of the messages that the copies stand for."""
    copies = {number: event for number, event in enumerate(events) if _is_of_copies(queues, event)}
    if not copies:
        return events
    hour, global_index = (
        np.concatenate([getattr(event, column) for event in copies.values()])
        for column in ("hour", "global_index")
    )
    of, start = origins(wheel, hour, global_index), 0
    for number, event in copies.items():
        rows = slice(start, start := start + event.n)
        events[number] = event._replace(
            hour=of.hour[rows], global_index=of.global_index[rows], attempt=of.attempt[rows], by_id=True
        )
    return events


def _is_of_copies(queues: Queues, event: Event) -> bool:
    if event.kind not in (Kind.RELEASED, Kind.EXPIRED, Kind.CANCELLED) or not isinstance(event.queue, int):
        return False
    if event.kind is Kind.EXPIRED and event.offset is not None:  # trimmed: its origins are known already
        return False
    return bool(queues[event.queue].group)


def retried(
    wheel: Wheel,
    queues: Queues,
    command: log_pb.RetryCommand,
    keep: NDArray[np.intp],
    due_ms: NDArray[np.int64],
) -> list[Event]:
    """Return what a retry did to the offsets at the positions kept: next attempts, or dead letters."""
    offset = np.frombuffer(command.offset, dtype="<u8")[keep]
    again = command.target_group != "" and not command.dropped
    redriven = again and command.reason == RetryReason.RETRY_REASON_UNSPECIFIED
    kind = Kind.ACKED if redriven else Kind.RETRIED if again else Kind.DEAD
    done = settled(kind, wheel, queues, command.queue, command.group, offset, command.now_ms)
    if not redriven:
        reason = REASONS.get(command.reason, "UNKNOWN")
        return [done._replace(detail=reason, due_ms=done.due_ms if kind is Kind.DEAD else due_ms)]
    of = origins_in([command.records[i] for i in keep.tolist()])
    next_attempt = Event(
        Kind.RETRIED,
        len(offset),
        command.now_ms,
        topic=command.target_topic,
        group=command.target_group,
        hour=of.hour,
        global_index=of.global_index,
        due_ms=due_ms,
        detail="REDRIVEN",
        by_id=True,
    )
    return [done, next_attempt]


def cancelled(
    done: Cancellation, hour: NDArray[np.uint32], global_index: NDArray[np.uint32], now_ms: int
) -> list[Event]:
    """Return the cancelling of messages that were pending, by queue; hour and index are of their places."""
    hour, global_index = hour[done.rows], global_index[done.rows]
    queue, due_ms = queue_of(done.topic), hour * np.int64(HOUR_MS) + done.due_in_hour_ms
    return [
        Event(
            Kind.CANCELLED,
            len(due_ms[rows]),
            now_ms,
            one,
            hour=hour[rows],
            global_index=global_index[rows],
            due_ms=due_ms[rows],
        )
        for one, rows in groups(queue)
    ]


REASONS: Final = {number: name.removeprefix("RETRY_REASON_") for name, number in RetryReason.items()}
"""Names of reasons in the ledger; a field of an enumeration may hold any number."""
MOVES: Final = {
    log_pb.SubscribeCommand: GroupMove.CREATED,
    log_pb.SeekCommand: GroupMove.SEEK,
    log_pb.DeleteGroupCommand: GroupMove.DELETED,
    log_pb.DeleteTopicCommand: GroupMove.TOPIC_DELETED,
    log_pb.TrimCommand: GroupMove.TRIMMED,
}


def moved(command: Message, queues: Queues, topic: str, group: str) -> Event:
    """Return that a command let a group go on somewhere else in its topic, or nowhere."""
    queue = queues.find(topic)
    there = queue and queues.acknowledged.get((group, queue.queue))
    return Event(
        Kind.GROUP_MOVED,
        1,
        getattr(command, "now_ms", 0),
        topic=topic,
        group=group,
        offset=np.array([there.floor]) if there else None,
        detail=MOVES[type(command)],
    )


def _copy(record: bytes) -> Retried:
    try:
        return Retried.FromString(record)
    except DecodeError:
        return Retried()
