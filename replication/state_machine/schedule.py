"""Application of schedule commands: columns for the wheel, and the answers.

All schedule commands of a log entry become one append to the wheel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.ledger.schema import Kind
from tarry.proto.reasons import Reason
from tarry.replication.state_machine import admission, keys, lanes, producer_answers
from tarry.replication.state_machine.events import Event, Events
from tarry.replication.state_machine.outcomes import Repeated, Scheduled
from tarry.replication.state_machine.queues import Queues
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.columns import distinct
from tarry.wheel.state import HOUR_MS, Appended
from tarry.wheel.wheel import Wheel

DUE_MS_MAX: Final = 253_402_300_799_999
"""The latest due time that can be stored, the last of the year 9999; the leader's horizon is far below."""
Append: TypeAlias = Callable[
    [NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint64], Sequence[bytes]], Appended
]
_COMING: Final = Scheduled(b"", 0)
"""In the place of an answer that is to come."""


class Part(NamedTuple):
    """One schedule command: columns of n values as bytes; without values, tag_mask and lane are zeros."""

    request: log_pb.ScheduleColumns
    n: int
    now_ms: int
    due_ms: bytes
    queue: bytes
    tag_mask: bytes
    lane: bytes
    queues: Sequence[int]
    """The distinct queues."""
    bounds: producer_answers.Bounds
    command: log_pb.ScheduleCommand


class Columns(NamedTuple):
    """Messages of several commands, one after another, shape (n,)."""

    due_ms: NDArray[np.int64]
    past: NDArray[np.bool_]
    queue: NDArray[np.uint32]
    tag_mask: NDArray[np.uint64]
    lane: NDArray[np.uint32] | None
    """None: no record has an ordering key."""


def read(command: log_pb.ScheduleCommand, queues: Queues, bounds: producer_answers.Bounds) -> Part | Refusal:
    """Return the command's part of an entry; makes the topics of its messages that are new."""
    request = command.request
    topics, topic, tag_mask, lane = request.topics, request.topic, request.tag_mask, command.lane
    due_ms, n = command.due_ms or request.due_ms, len(request.records)
    if (
        len(due_ms) != 8 * n
        or len(topic) not in (0, 4 * n)
        or len(tag_mask) not in (0, 8 * n)
        or len(lane) not in (0, 4 * n)
    ):
        return Refusal(Reason.COLUMNS_DIFFER, "the request's columns differ in length")
    places = np.frombuffer(topic, dtype="<u4") if topic else None
    if n == 0 or not topics or (places is not None and int(places.max()) >= len(topics)):
        return Refusal(Reason.COLUMNS_DIFFER, "a message names a topic that the request does not")
    if places is None or len(topics) == 1:
        number = queues.of(topics[0]).queue
        queue, used = number.to_bytes(4, "little") * n, [number]
    else:
        named = distinct(places).tolist()
        numbers = np.zeros(len(topics), dtype="<u4")
        numbers[named] = [queues.of(topics[place]).queue for place in named]
        queue, used = numbers[places].tobytes(), numbers[named].tolist()
    return Part(request, n, command.now_ms, due_ms, queue, tag_mask, lane, used, bounds, command)


def join(parts: Sequence[Part]) -> Columns:
    """Return the messages of all parts.

    A due time in the past becomes its command's now: the message is due at once.
    """
    sizes = [part.n for part in parts]
    now_ms: int | NDArray[np.int64] = parts[0].now_ms
    if any(part.now_ms != now_ms for part in parts):
        now_ms = np.repeat(np.array([part.now_ms for part in parts], np.int64), sizes)
    due_ms = np.frombuffer(b"".join([part.due_ms for part in parts]), "<i8")
    lane = None
    if any(part.lane for part in parts):
        lane = np.frombuffer(b"".join([part.lane or bytes(4 * part.n) for part in parts]), "<u4")
    return Columns(
        np.minimum(np.maximum(due_ms, now_ms), DUE_MS_MAX),
        due_ms < now_ms,
        np.frombuffer(b"".join([part.queue for part in parts]), "<u4"),
        np.frombuffer(b"".join([part.tag_mask or bytes(8 * part.n) for part in parts]), "<u8"),
        lane,
    )


def response(
    shard: int, hour: bytes, global_index: bytes, due_ms: bytes, overdue: bytes, *, repeated: bool
) -> bytes:
    """Return the ScheduleBatchResponse, serialized; ``overdue``: the places of the messages that were."""
    columns = log_pb.ScheduledColumns(
        shard=shard,
        hour=hour,
        global_index=global_index,
        due_ms=due_ms,
        overdue=overdue,
        repeated=repeated,
    )
    return columns.SerializeToString()


class Scheduler:
    """Applies schedule commands to the wheel, the queues and the producers' table."""

    def __init__(
        self,
        shard: int,
        wheel: Wheel,
        queues: Queues,
        known: producer_answers.Producers,
        events: Events,
        keyed: keys.Keyed,
    ) -> None:
        self._shard = shard
        self._events = events
        self._keyed = keyed
        self._wheel = wheel
        self._queues = queues
        self._producers = known

    def apply(
        self, commands: Sequence[log_pb.ScheduleCommand | Refusal]
    ) -> list[Scheduled | Repeated | Refusal]:
        """Apply the commands in order; an answer each."""
        outcomes: list[Scheduled | Repeated | Refusal] = []
        parts: list[Part] = []
        places: list[int] = []
        taken: set[tuple[str, int]] = set()
        coming = 0  # the parts' messages, not yet in the wheel
        for command in commands:
            if isinstance(command, Refusal):
                outcomes.append(command)
                continue
            key = producer, _ = command.request.producer, command.request.sequence
            bounds = producer_answers.Bounds(
                command.now_ms, command.producers_max, command.producer_silent_ms
            )
            if key in taken or (producer and self._producers.full(producer, bounds, len(parts))):
                # the same request twice in one entry, or hardly room for a producer: those before come first
                self._append(parts, places, outcomes)
                parts, places, taken, coming = [], [], set(), 0
            known = self._known(*key, bounds) if producer else None
            part = known or read(command, self._queues, bounds)
            most = command.second_messages_max
            if isinstance(part, Part) and not self._fits(part, coming, most):
                self._append(parts, places, outcomes)
                parts, places, taken, coming = [], [], set(), 0
                one = join([part])
                due_ms, queue = one.due_ms, one.queue
                refused = admission.refusal(self._wheel, self._queues, due_ms, queue, most, part.now_ms)
                part = refused or part
            if isinstance(part, Part):
                if producer:
                    taken.add(key)
                places.append(len(outcomes))
                parts.append(part)
                coming += part.n
                outcomes.append(_COMING)
            else:
                outcomes.append(part)
        self._append(parts, places, outcomes)
        return outcomes

    def _fits(self, part: Part, coming: int, second_messages_max: int) -> bool:
        """Return whether a part surely fits, behind messages not yet in the wheel; False: count exactly."""
        coming += part.n
        most = second_messages_max
        if most and self._wheel.pending + coming > most:
            hours = distinct(join([part]).due_ms // HOUR_MS).tolist()
            if any(self._wheel.pending_in_hour(hour) + coming > most for hour in hours):
                return False
        return all(
            not (limit := self._queues[queue].settings.pending_max)
            or self._wheel.pending_of(queue) + self._queues.halves(queue) + coming <= limit
            for queue in part.queues
        )

    def _known(
        self, producer: str, sequence: int, bounds: producer_answers.Bounds
    ) -> Repeated | Refusal | None:
        answer = self._producers.answer(producer, sequence)
        if answer is not None:
            return Repeated(answer)
        if self._producers.too_old(producer, sequence):
            text = f"request {sequence} of this producer may have been answered, and the answer is forgotten"
            return Refusal(Reason.SEQUENCE_TOO_OLD, text + ": keep fewer in flight, repeat them sooner")
        return admission.too_many_producers(bounds) if self._producers.full(producer, bounds) else None

    def _append(
        self, parts: list[Part], places: list[int], outcomes: list[Scheduled | Repeated | Refusal]
    ) -> None:
        if not parts:
            return
        columns = join(parts)
        records = list(chain.from_iterable([part.request.records for part in parts]))
        done = self.place(
            columns.due_ms, columns.queue, columns.tag_mask, records, parts[-1].now_ms, lane=columns.lane
        )
        ends = list(accumulate([part.n for part in parts]))
        starts = [0, *ends[:-1]]
        for part, start in zip(parts, starts, strict=True):
            self._keyed.scheduled(part.command, columns.queue, done, start)
        named = self._wheel.first_ids_of(done.hour, done.global_index)
        hour, index = (column.astype("<u4").tobytes() for column in named)
        due_ms = columns.due_ms.astype("<i8").tobytes()
        past = columns.past if bool(columns.past.any()) else None
        sequences = [part.request.sequence for part in parts]
        kept = producer_answers.pack(sequences, starts, done.hour, done.global_index)
        for part, place, start, end, answer in zip(parts, places, starts, ends, kept, strict=True):
            overdue = b"" if past is None else np.flatnonzero(past[start:end]).astype("<u4").tobytes()
            fours, eights = slice(4 * start, 4 * end), slice(8 * start, 8 * end)
            given = response(self._shard, hour[fours], index[fours], due_ms[eights], overdue, repeated=False)
            outcomes[place] = Scheduled(given, part.n)
            if part.request.producer:
                self._producers.remember(part.request.producer, answer, part.bounds)

    def place(
        self,
        due_ms: NDArray[np.int64],
        queue: NDArray[np.uint32],
        tag_mask: NDArray[np.uint64],
        records: Sequence[bytes],
        now_ms: int,
        *,
        lane: NDArray[np.uint32] | None = None,
        told: bool = True,
        detail: str | Sequence[str] | None = None,
        append: Append | None = None,
    ) -> Appended:
        """Put messages, columns of shape (n,), into the wheel; what is past release goes on at once.

        ``told``: as scheduled, with the detail, of all or of each; a retry's copies are told of as retried
        instead.
        ``append``: the wheel's call for it, where they are not new.
        """
        topic = queue
        if lane is not None:
            topic, tag_mask = lanes.pack(queue, tag_mask, lane)
        done = (append or self._wheel.append)(due_ms, topic, tag_mask, records)
        if told and self._events.wanted:
            one = detail if isinstance(detail, str) else None
            told_of = Event(Kind.SCHEDULED, len(due_ms), now_ms, queue, due_ms=due_ms, detail=one)
            told_of = told_of._replace(hour=done.hour, global_index=done.global_index)
            for event in [told_of] if one is detail else _each(told_of, queue, detail or ()):
                self._events.add(event)
        if bool(done.overdue.any()):
            late = np.flatnonzero(done.overdue)
            late = late[np.argsort(due_ms[late], kind="stable")]
            self._queues.release(
                topic[late], due_ms[late], done.hour[late], done.global_index[late], tag_mask[late], now_ms
            )
        return done


def _each(event: Event, queue: NDArray[np.uint32], details: Sequence[str]) -> list[Event]:
    """Return an event for each message of one, whose columns have shape (n,), with a detail of its own."""
    columns = {name: getattr(event, name) for name in ("hour", "global_index", "due_ms")}
    return [
        event._replace(
            n=1,
            queue=int(queue[row]),
            detail=detail,
            **{name: column[row : row + 1] for name, column in columns.items()},
        )
        for row, detail in enumerate(details)
    ]
