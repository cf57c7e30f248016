"""Rescheduling of pending messages: what a committed RescheduleCommand does.

    the old unit   gone, as a cancelled one is
    the new unit   in the new hour, with the record that the command brings; due at once if it is past
    the id         stays: the wheel has its place (wheel/moved_messages.py)
    a retry        likewise, but that its record names the message, and that the lane it blocks goes with it

Applying reads units, as a cancel does, and no record. What is released, cancelled, due at another time than
was asked for, or moved since its record was read, is an outcome.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_producer_pb2 as producer_pb
from tarry.proto.ledger.schema import Kind
from tarry.proto.reasons import Reason
from tarry.replication.state_machine import admission, event_details, keys, lanes
from tarry.replication.state_machine.events import Event, Events
from tarry.replication.state_machine.outcomes import Rescheduled
from tarry.replication.state_machine.queues import CHECKS, Queues
from tarry.replication.state_machine.refusal import Refusal
from tarry.replication.state_machine.schedule import DUE_MS_MAX, Scheduler
from tarry.wheel.columns import distinct, first_rows, groups
from tarry.wheel.delay_log import UNIT, checksums, lengths
from tarry.wheel.state import HOUR_MS, SECOND_MS, MessageState
from tarry.wheel.wheel import Wheel

CHANGED: Final = producer_pb.CHANGE_OUTCOME_CHANGED
ALREADY_SO: Final = producer_pb.CHANGE_OUTCOME_ALREADY_SO
DUE_DIFFERS: Final = producer_pb.CHANGE_OUTCOME_DUE_DIFFERS
NOT_FOUND: Final = producer_pb.CHANGE_OUTCOME_NOT_FOUND
MOVED_MEANWHILE: Final = 100
"""The message rests elsewhere than its record was read: the leader reads again. No caller is told."""
WHENEVER: Final = -1

OUTCOME_OF_STATE: Final = np.zeros(8, np.uint8)
"""By the wheel's state of the message; of a pending one, what the command is to come to."""
OUTCOME_OF_STATE[MessageState.PENDING] = CHANGED
OUTCOME_OF_STATE[MessageState.RELEASED] = producer_pb.CHANGE_OUTCOME_ALREADY_RELEASED
OUTCOME_OF_STATE[MessageState.CANCELLED] = producer_pb.CHANGE_OUTCOME_ALREADY_CANCELLED
OUTCOME_OF_STATE[MessageState.NOT_FOUND] = NOT_FOUND


class Request(NamedTuple):
    """A command's columns, shape (n,)."""

    hour: NDArray[np.uint32]
    global_index: NDArray[np.uint32]
    place_hour: NDArray[np.uint32]
    place_index: NDArray[np.uint32]
    due_ms: NDArray[np.int64]
    if_due_ms: NDArray[np.int64]
    tag_mask: NDArray[np.uint64] | None


def read(command: log_pb.RescheduleCommand) -> Request | Refusal:
    """Return the columns; a due time in the past becomes the command's now."""
    hour, global_index, place_hour, place_index = (
        np.frombuffer(column, "<u4")
        for column in (command.hour, command.global_index, command.place_hour, command.place_index)
    )
    due_ms = np.frombuffer(command.due_ms, "<i8")
    if_due_ms = np.frombuffer(command.if_due_ms, "<i8")
    mask = np.frombuffer(command.tag_mask, "<u8")
    n = len(command.records)
    columns = (hour, global_index, place_hour, place_index, due_ms)
    if {*map(len, columns)} != {n} or len(if_due_ms) not in (0, n) or len(mask) not in (0, n):
        return Refusal(Reason.COLUMNS_DIFFER, "the command's columns differ in length")
    return Request(
        hour,
        global_index,
        place_hour,
        place_index,
        np.minimum(np.maximum(due_ms, command.now_ms), DUE_MS_MAX),
        if_due_ms if len(if_due_ms) else np.full(n, WHENEVER, np.int64),
        mask if len(mask) else None,
    )


def reschedule(
    command: log_pb.RescheduleCommand,
    wheel: Wheel,
    queues: Queues,
    scheduler: Scheduler,
    events: Events,
    keyed: keys.Keyed,
) -> Rescheduled | Refusal:
    """Apply the command."""
    asked = read(command)
    if isinstance(asked, Refusal):
        return asked
    found = _find(asked, wheel, queues, copies=command.copies)
    topic, mask = _tags(found.units, asked.tag_mask)
    records = command.records
    outcomes, due_ms, place = found.outcomes, found.due_ms, found.place
    (rows,) = np.nonzero(outcomes == CHANGED)
    outcomes[rows] = np.select(
        (
            (due_ms[rows] == asked.due_ms[rows])
            & (mask[rows] == found.units["tag_mask"][rows])
            & _are_equal(found.units[rows], [records[row] for row in rows.tolist()]),
            (asked.if_due_ms[rows] != WHENEVER) & (asked.if_due_ms[rows] != due_ms[rows]),
            (place[0][rows] != asked.place_hour[rows]) | (place[1][rows] != asked.place_index[rows]),
        ),
        (ALREADY_SO, DUE_DIFFERS, MOVED_MEANWHILE),
        CHANGED,
    )
    (rows,) = np.nonzero(outcomes == CHANGED)
    elsewhere = rows[asked.due_ms[rows] // SECOND_MS != due_ms[rows] // SECOND_MS]
    refused = _no_room(command, wheel, asked, elsewhere)
    if refused is not None or not len(rows):
        return refused or Rescheduled(outcomes, due_ms)
    new_ms, before = asked.due_ms[rows], (place[0][rows], place[1][rows])
    moved = [records[row] for row in rows.tolist()]
    for event in _events(command, asked, rows, lanes.queue_of(topic[rows]), moved) if events.wanted else ():
        events.add(event)
    keeps = np.full(len(rows), not command.copies)
    named = asked.hour[rows], asked.global_index[rows]
    append = partial(wheel.move, *(wheel.ids_of(*named) if command.copies else named), keeps)
    placed = scheduler.place(
        new_ms, topic[rows], mask[rows], moved, command.now_ms, told=False, append=append
    )
    if command.copies:
        queues.follow(before, placed)
    elif keyed.wanted:
        of_rows = keys.of_records(moved)
        keyed.add(of_rows, lanes.queue_of(topic[rows]), placed.hour, placed.global_index)
    due_ms[rows] = new_ms
    return Rescheduled(outcomes, due_ms)


class _Found(NamedTuple):
    """State of a command's messages, shape (n,); units and due times are zero where one is not pending."""

    place: tuple[NDArray[np.uint32], NDArray[np.uint32]]
    outcomes: NDArray[np.uint8]
    units: NDArray[np.void]
    due_ms: NDArray[np.int64]


def _find(asked: Request, wheel: Wheel, queues: Queues, *, copies: bool) -> _Found:
    named = asked.hour, asked.global_index
    hour, index = named if copies else wheel.places_of(*named)
    outcomes = OUTCOME_OF_STATE[wheel.states(hour, index)]
    (rows,) = np.nonzero(outcomes == CHANGED)
    units = np.zeros(len(hour), UNIT)
    units[rows] = wheel.units(hour[rows], index[rows])
    queue = lanes.queue_of(units["topic"][rows])
    of = {number: queues[number] for number in distinct(queue).tolist()}
    retries = [number for number, one in of.items() if one.group]
    halves = [number for number, one in of.items() if one.topic == CHECKS]  # moved, nothing would end them
    outcomes[rows[np.isin(queue, np.array(retries, np.uint32)) != copies]] = NOT_FOUND
    outcomes[rows[np.isin(queue, np.array(halves, np.uint32))]] = NOT_FOUND
    (rows,) = np.nonzero(outcomes == CHANGED)
    places = hour[rows].astype(np.uint64) << np.uint64(32) | index[rows]
    twice = np.ones(len(rows), np.bool_)
    twice[first_rows(places)] = False
    outcomes[rows[twice]] = MOVED_MEANWHILE
    due_ms = np.zeros(len(hour), np.int64)
    due_ms[rows] = hour[rows].astype(np.int64) * HOUR_MS + units["due_in_hour_ms"][rows]
    return _Found((hour, index), outcomes, units, due_ms)


def _tags(
    units: NDArray[np.void], tag_mask: NDArray[np.uint64] | None
) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
    """Return the wheel's columns topic and tag mask, with the masks of new records; lanes stay."""
    topic, mask = units["topic"].copy(), units["tag_mask"].copy()
    if tag_mask is None:
        return topic, mask
    queue, _, lane = lanes.unpack(topic, mask)
    return lanes.pack(
        queue, tag_mask, lane if isinstance(lane, np.ndarray) else np.zeros(len(queue), np.uint32)
    )


def _are_equal(units: NDArray[np.void], records: Sequence[bytes]) -> NDArray[np.bool_]:
    """Flag the units, shape (n,), that have these records."""
    equal: NDArray[np.bool_] = (units["size"] == lengths(records)) & (units["crc32c"] == checksums(records))
    return equal


def _no_room(
    command: log_pb.RescheduleCommand, wheel: Wheel, asked: Request, rows: NDArray[np.intp]
) -> Refusal | None:
    """Return why messages have no room within the seconds that they are to be due in; others keep theirs."""
    if not len(rows):
        return None
    most, now_ms = command.second_messages_max, command.now_ms
    refused = admission.second_full(wheel, asked.due_ms[rows], most, now_ms)
    return None if refused is None else refused.of_rows(rows)


def _events(
    command: log_pb.RescheduleCommand,
    asked: Request,
    rows: NDArray[np.intp],
    queue: NDArray[np.uint32],
    records: list[bytes],
) -> Iterator[Event]:
    """Yield what the ledger is told: by their ids, and by the messages that copies are of."""
    of = event_details.origins_in(records) if command.copies else None
    for number, some in groups(queue):
        chosen = rows[some]
        yield Event(
            Kind.RESCHEDULED,
            len(chosen),
            command.now_ms,
            number,
            hour=asked.hour[chosen] if of is None else of.hour[some],
            global_index=asked.global_index[chosen] if of is None else of.global_index[some],
            due_ms=asked.due_ms[chosen],
            attempt=None if of is None else of.attempt[some],
            detail="UPDATED" if command.tag_mask else None,
            by_id=True,
        )
