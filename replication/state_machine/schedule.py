"""Application of schedule commands: columns for the wheel, and the answers.

All schedule commands of a log entry become one append to the wheel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.ledger.schema import Kind
from tarry.proto.reasons import Reason
from tarry.replication.state_machine import admission, lanes, producer_answers
from tarry.replication.state_machine.events import Event, Events
from tarry.replication.state_machine.outcomes import Repeated, Scheduled
from tarry.replication.state_machine.queues import Queues
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.columns import distinct
from tarry.wheel.state import HOUR_MS, Appended
from tarry.wheel.wheel import Wheel

DUE_MS_MAX: Final = 253_402_300_799_999
"""The latest due time that can be stored, the last of the year 9999; the leader's horizon is far below."""


@dataclass(frozen=True, slots=True)
class Part:
    """One schedule command as columns of shape (n,)."""

    request: log_pb.ScheduleColumns
    due_ms: NDArray[np.int64]
    past: NDArray[np.bool_]
    queue: NDArray[np.uint32]
    tag_mask: NDArray[np.uint64]
    lane: NDArray[np.uint32] | None
    """None: no record has an ordering key."""
    topics: list[int]
    """The distinct queues."""
    bounds: producer_answers.Bounds


def read(command: log_pb.ScheduleCommand, queues: Queues, bounds: producer_answers.Bounds) -> Part | Refusal:
    """Return the command's columns; makes the topics of its messages that are new.

    A due time in the past becomes the command's now: the message is due at once.
    """
    request = command.request
    n = len(request.records)
    due = np.frombuffer(command.due_ms or request.due_ms, dtype="<i8")
    topic = np.frombuffer(request.topic, dtype="<u4") if request.topic else np.zeros(n, dtype=np.uint32)
    mask = np.frombuffer(request.tag_mask, dtype="<u8") if request.tag_mask else np.zeros(n, dtype=np.uint64)
    lane = np.frombuffer(command.lane, dtype="<u4") if command.lane else None
    if not len(due) == len(topic) == len(mask) == n or (lane is not None and len(lane) != n):
        return Refusal(Reason.COLUMNS_DIFFER, "the request's columns differ in length")
    if n == 0 or not request.topics or int(topic.max()) >= len(request.topics):
        return Refusal(Reason.COLUMNS_DIFFER, "a message names a topic that the request does not")
    used = [0] if len(request.topics) == 1 else distinct(topic).tolist()
    numbers = np.zeros(len(request.topics), dtype=np.uint32)
    numbers[used] = [queues.of(request.topics[place]).queue for place in used]
    past = due < command.now_ms
    due = np.clip(due, command.now_ms, DUE_MS_MAX)
    return Part(request, due, past, numbers[topic], mask, lane, numbers[used].tolist(), bounds)


def response(
    shard: int,
    hour: NDArray[np.uint32],
    global_index: NDArray[np.uint32],
    due_ms: NDArray[np.int64],
    overdue: NDArray[np.uint32],
    *,
    repeated: bool,
) -> bytes:
    """Return the ScheduleBatchResponse, serialized; ``overdue``: the places of the messages that were."""
    columns = log_pb.ScheduledColumns(
        shard=shard,
        hour=hour.astype("<u4").tobytes(),
        global_index=global_index.astype("<u4").tobytes(),
        due_ms=due_ms.astype("<i8").tobytes(),
        overdue=overdue.astype("<u4").tobytes(),
        repeated=repeated,
    )
    return columns.SerializeToString()


class Scheduler:
    """Applies schedule commands to the wheel, the queues and the producers' table."""

    def __init__(
        self, shard: int, wheel: Wheel, queues: Queues, known: producer_answers.Producers, events: Events
    ) -> None:
        self._shard = shard
        self._events = events
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
        now_ms = coming = 0  # coming: the parts' messages, not yet in the wheel
        for command in commands:
            if isinstance(command, Refusal):
                outcomes.append(command)
                continue
            key = (command.request.producer, command.request.sequence)
            bounds = producer_answers.Bounds(
                command.now_ms, command.producers_max, command.producer_silent_ms
            )
            if key in taken or (key[0] and self._producers.full(key[0], bounds, len(parts))):
                # the same request twice in one entry, or hardly room for a producer: those before come first
                self._append(parts, places, outcomes, now_ms)
                parts, places, taken, coming = [], [], set(), 0
            known = self._known(*key, bounds) if key[0] else None
            part = known or read(command, self._queues, bounds)
            if isinstance(part, Part) and not self._fits(part, coming, command.second_messages_max):
                self._append(parts, places, outcomes, now_ms)
                parts, places, taken, coming = [], [], set(), 0
                part = admission.refusal(
                    self._wheel, self._queues, part.due_ms, part.queue, command.second_messages_max,
                    command.now_ms,
                ) or part  # fmt: skip
            if isinstance(part, Part):
                taken.add(key) if key[0] else None
                places.append(len(outcomes))
                parts.append(part)
                coming += len(part.due_ms)
                now_ms = command.now_ms
                outcomes.append(Scheduled(b"", 0))
            else:
                outcomes.append(part)
        self._append(parts, places, outcomes, now_ms)
        return outcomes

    def _fits(self, part: Part, coming: int, second_messages_max: int) -> bool:
        """Return whether a part surely fits, behind messages not yet in the wheel; False: count exactly."""
        coming += len(part.due_ms)
        most = second_messages_max
        if most and self._wheel.pending + coming > most:
            hours = distinct(part.due_ms // HOUR_MS).tolist()
            if any(self._wheel.pending_in_hour(hour) + coming > most for hour in hours):
                return False
        return all(
            not (limit := self._queues[topic].settings.pending_max)
            or self._wheel.pending_of(topic) + coming <= limit
            for topic in part.topics
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
        self,
        parts: list[Part],
        places: list[int],
        outcomes: list[Scheduled | Repeated | Refusal],
        now_ms: int,
    ) -> None:
        if not parts:
            return
        one = len(parts) == 1
        due_ms = parts[0].due_ms if one else np.concatenate([p.due_ms for p in parts])
        queue = parts[0].queue if one else np.concatenate([p.queue for p in parts])
        mask = parts[0].tag_mask if one else np.concatenate([p.tag_mask for p in parts])
        records = list(chain.from_iterable(part.request.records for part in parts))
        lane = None
        if any(part.lane is not None for part in parts):
            lane = np.concatenate(
                [np.zeros(len(p.queue), np.uint32) if p.lane is None else p.lane for p in parts]
            )
        done = self.place(due_ms, queue, mask, records, now_ms, lane=lane)
        start = 0
        for part, place in zip(parts, places, strict=True):
            end = start + len(part.due_ms)
            hour, index = done.hour[start:end], done.global_index[start:end]
            past = np.flatnonzero(part.past).astype(np.uint32)
            answer = response(self._shard, hour, index, part.due_ms, past, repeated=False)
            outcomes[place] = Scheduled(answer, len(hour))
            if part.request.producer:
                kept = producer_answers.pack(part.request.sequence, hour, index)
                self._producers.remember(part.request.producer, kept, part.bounds)
            start = end

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
        detail: str | None = None,
    ) -> Appended:
        """Put messages, columns of shape (n,), into the wheel; what is past release goes on at once.

        ``told``: as scheduled, with the detail; a retry's copies are told of as retried instead.
        """
        topic = queue
        if lane is not None:
            topic, tag_mask = lanes.pack(queue, tag_mask, lane)
        done = self._wheel.append(due_ms, topic, tag_mask, records)
        if told and self._events.wanted:
            self._events.add(
                Event(
                    Kind.SCHEDULED,
                    len(due_ms),
                    now_ms,
                    queue,
                    hour=done.hour,
                    global_index=done.global_index,
                    due_ms=due_ms,
                    detail=detail,
                )
            )
        if bool(done.overdue.any()):
            late = np.flatnonzero(done.overdue)
            late = late[np.argsort(due_ms[late], kind="stable")]
            self._queues.release(
                topic[late], due_ms[late], done.hour[late], done.global_index[late], tag_mask[late], now_ms
            )
        return done
