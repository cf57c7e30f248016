"""Answers of the cluster, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import repeat
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tarry.proto import tarry_message_pb2 as message_pb
from tarry.proto import tarry_producer_pb2 as producer_pb
from tarry.proto.message_id import MessageId, format_ids

FEW: Final = 10
"""Ids up to which one by one is quicker than columns (measured: 6 µs each against 80 µs at once)."""


class Scheduled(NamedTuple):
    """One message is scheduled: fsynced on a majority."""

    id: str
    due_ms: int
    """As the cluster took it: where a delay was asked for, its clock's now plus the delay."""
    overdue: bool
    """The due time was not ahead any more: delivered at once."""
    repeated: bool
    """A retry found the answer to an earlier attempt, or the idempotency key was used before: scheduled then,
    not again. By a key, ``due_ms`` is when that message is due now, after it was rescheduled, too."""


@dataclass(eq=False, repr=False)
class ScheduledBatch:
    """A batch is scheduled. Columns have shape (n,), in the messages' order; ids are made when asked for."""

    shard: int
    hour: NDArray[np.uint32]
    global_index: NDArray[np.uint32]
    due_ms: NDArray[np.int64]
    overdue: NDArray[np.uint32]
    """Positions of those delivered at once: shape (m,), m <= n."""
    repeated: bool
    """A retry found the answer to an earlier attempt of the whole request, or of some piece of the batch."""
    repeats: NDArray[np.uint32]
    """Positions of those whose idempotency key was used before, by whatever request: shape (m,), m <= n. The
    columns tell of the first messages that had the keys."""

    def __len__(self) -> int:
        return len(self.hour)

    @cached_property
    def ids(self) -> list[str]:
        """The messages' ids."""
        return ids_of(self.shard, self.hour, self.global_index)

    @classmethod
    def of(cls, response: producer_pb.ScheduleBatchResponse) -> ScheduledBatch:
        """Return the answer to one request."""
        return cls(
            response.shard,
            np.array(response.hour, dtype=np.uint32),
            np.array(response.global_index, dtype=np.uint32),
            np.array(response.due_ms, dtype=np.int64),
            np.array(response.overdue, dtype=np.uint32),
            response.repeated,
            np.array(response.repeats, dtype=np.uint32),
        )

    @classmethod
    def joined(cls, pieces: list[ScheduledBatch]) -> ScheduledBatch:
        """Return the answers to the pieces of one batch as one."""
        if len(pieces) == 1:
            return pieces[0]
        starts = np.cumsum([0, *map(len, pieces[:-1])])
        return cls(
            pieces[0].shard,
            np.concatenate([piece.hour for piece in pieces]),
            np.concatenate([piece.global_index for piece in pieces]),
            np.concatenate([piece.due_ms for piece in pieces]),
            np.concatenate([piece.overdue + start for piece, start in zip(pieces, starts, strict=True)]),
            any(piece.repeated for piece in pieces),
            np.concatenate([piece.repeats + start for piece, start in zip(pieces, starts, strict=True)]),
        )


def ids_of(
    shard: int, hour: Sequence[int] | NDArray[np.uint32], global_index: Sequence[int] | NDArray[np.uint32]
) -> list[str]:
    """Return the text form of many ids; columns have shape (n,)."""
    if len(hour) > FEW:
        return format_ids(shard, np.array(hour, dtype=np.uint32), np.array(global_index, dtype=np.uint32))
    return list(map(str, map(MessageId, repeat(shard), map(int, hour), map(int, global_index))))


def rows_of(response: producer_pb.ScheduleBatchResponse) -> list[Scheduled]:
    """Return one Scheduled a message."""
    overdue = [False] * len(response.hour)
    for position in response.overdue:
        overdue[position] = True
    repeated = [response.repeated] * len(response.hour)
    for position in response.repeats:
        repeated[position] = True
    ids = ids_of(response.shard, response.hour, response.global_index)
    return list(map(Scheduled, ids, response.due_ms, overdue, repeated))


class CancelOutcome(StrEnum):
    """Outcome of a cancel; definite and linearizable."""

    CANCELLED = "cancelled"
    """No consumer gets it any more; with ``remaining_groups``, none of a group that has not had it."""
    ALREADY_CANCELLED = "already_cancelled"
    """It was cancelled before; also by this cancel, where its first answer was lost."""
    ALREADY_DELIVERED = "already_delivered"
    """A consumer has it, or has had it and another group has not, or is to have it again."""
    ALREADY_DONE = "already_done"
    """Every group is done with it."""
    ALREADY_RELEASED = "already_released"
    """Of a cluster at level 1: it was due, and may have been delivered."""
    NOT_FOUND = "not_found"
    UNSPECIFIED = "unspecified"
    """An outcome this client does not know yet: it was not cancelled."""

    @classmethod
    def of(cls, outcome: int) -> CancelOutcome:
        """Return the outcome of its number on the wire."""
        known = producer_pb.CancelOutcome.values()
        name = producer_pb.CancelOutcome.Name(outcome) if outcome in known else "CANCEL_OUTCOME_UNSPECIFIED"
        return cls[name.removeprefix("CANCEL_OUTCOME_")]


class ChangeOutcome(StrEnum):
    """Outcome of a reschedule or an update; definite and linearizable."""

    CHANGED = "changed"
    ALREADY_SO = "already_so"
    """It was as it was to be; also by this call, where its first answer was lost."""
    DUE_DIFFERS = "due_differs"
    """It is due at another time than ``if_due_ms``, and has not been changed."""
    ALREADY_RELEASED = "already_released"
    """It was due, and may have been delivered; with a group, it does not wait for a retry there."""
    ALREADY_CANCELLED = "already_cancelled"
    NOT_FOUND = "not_found"
    UNSPECIFIED = "unspecified"
    """An outcome this client does not know yet: it was not changed."""

    @classmethod
    def of(cls, outcome: int) -> ChangeOutcome:
        """Return the outcome of its number on the wire."""
        known = producer_pb.ChangeOutcome.values()
        name = producer_pb.ChangeOutcome.Name(outcome) if outcome in known else "CHANGE_OUTCOME_UNSPECIFIED"
        return cls[name.removeprefix("CHANGE_OUTCOME_")]


@dataclass(frozen=True, slots=True)
class Change:
    """Answer to a reschedule or an update of one message."""

    id: str
    outcome: ChangeOutcome
    due_ms: int | None
    """When it is due now; None where it is not pending."""

    @classmethod
    def of(cls, message_id: str, outcome: int, due_ms: int) -> Change:
        """Return the answer about one message."""
        return cls(message_id, ChangeOutcome.of(outcome), due_ms or None)


class MessageState(StrEnum):
    """State of a message."""

    PENDING = "pending"
    """In the wheel, before its due time."""
    RELEASED = "released"
    """In its topic's ready queue: delivered, or about to be."""
    CANCELLED = "cancelled"
    UNSPECIFIED = "unspecified"
    """A state this client does not know yet."""

    @classmethod
    def of(cls, state: int) -> MessageState:
        """Return the state of its number on the wire."""
        known = message_pb.MessageState.values()
        name = message_pb.MessageState.Name(state) if state in known else "MESSAGE_STATE_UNSPECIFIED"
        return cls[name.removeprefix("MESSAGE_STATE_")]


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as the cluster has it now."""

    id: str
    topic: str
    due_ms: int
    state: MessageState
    body: bytes
    tags: tuple[str, ...]
    keys: tuple[str, ...]
    ordering_key: str
    idempotency_key: str
    properties: Mapping[str, str]
    born_ms: int | None = None
    """When its producer sent it first, by the producer's clock; None: not known."""
    stored_ms: int | None = None
    """When the cluster took it, by the cluster's clock; None: not known."""

    @classmethod
    def of(cls, response: producer_pb.GetResponse) -> StoredMessage:
        """Return the answer to one request."""
        record = response.record
        return cls(
            response.id,
            response.topic,
            response.due_ms,
            MessageState.of(response.state),
            record.body,
            tuple(record.tags),
            tuple(record.keys),
            record.ordering_key,
            record.idempotency_key,
            dict(record.properties),
            record.born_ms or None,
            record.stored_ms or None,
        )


class Place(NamedTuple):
    """Identity of the message and of its delivery; None where it is not delivered yet."""

    hour: int
    global_index: int
    due_ms: int
    offset: int | None = None
    attempt: int | None = None
    maybe_duplicate: bool | None = None
