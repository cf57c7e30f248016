"""Model of the application of schedule commands: one command's columns and answer at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.reasons import Reason
from tarry.replication.state_machine import admission
from tarry.replication.state_machine.outcomes import Repeated, Scheduled
from tarry.replication.state_machine.producer_answers import Bounds
from tarry.replication.state_machine.queues import Queues
from tarry.replication.state_machine.refusal import Refusal
from tarry.replication.state_machine.schedule import DUE_MS_MAX, Scheduler
from tarry.wheel.columns import distinct
from tarry.wheel.state import HOUR_MS


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
    bounds: Bounds


def read(command: log_pb.ScheduleCommand, queues: Queues, bounds: Bounds) -> Part | Refusal:
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


def pack(sequence: int, hour: NDArray[np.uint32], global_index: NDArray[np.uint32]) -> log_pb.Answer:
    """Return the answer in its kept form. Both columns have shape (n,)."""
    starts = np.flatnonzero(np.concatenate(([True], hour[1:] != hour[:-1])))  # of runs: mostly there is one
    lengths = np.diff(starts, append=len(hour))
    if len(starts) == 1:
        hours, run, which = hour[:1], starts, np.zeros(1, np.intp)
    else:
        hours, run, which = np.unique(hour[starts], return_index=True, return_inverse=True)
    by_run = 6 * len(starts) < 2 * len(hour)  # bytes
    return log_pb.Answer(
        sequence=sequence,
        hours=hours.astype("<u4").tobytes(),
        first=global_index[starts[run]].astype("<u4").tobytes(),
        which=(which if by_run else which.repeat(lengths)).astype("<u2").tobytes(),
        lengths=lengths.astype("<u4").tobytes() if by_run else b"",
    )


class OneByOne(Scheduler):
    """Scheduler as it was when it read the columns of each command, and made its answer, by themselves."""

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
            bounds = Bounds(command.now_ms, command.producers_max, command.producer_silent_ms)
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
                kept = pack(part.request.sequence, hour, index)
                self._producers.remember(part.request.producer, kept, part.bounds)
            start = end
