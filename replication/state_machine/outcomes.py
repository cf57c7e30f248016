"""Outcomes of commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.state import Taken


@dataclass(frozen=True, slots=True)
class Scheduled:
    """The answer to a schedule command: ScheduleBatchResponse, serialized."""

    response: bytes
    count: int


@dataclass(frozen=True, slots=True)
class Repeated:
    """The answer to a schedule command that has been applied before: the one given then, as it is kept.

    It has no due times: to look them up takes as long as the messages have hours, more than applying may.
    """

    given: log_pb.Answer


@dataclass(frozen=True, slots=True)
class Released:
    """Outcome of a release: how many the cut took to their ready queues, beside those that overtook."""

    count: int
    taken: tuple[Taken, ...] = field(default=(), compare=False, repr=False)
    """Both."""


@dataclass(frozen=True, slots=True)
class Acked:
    """Outcome of an ack or a retry: the offsets that had been done before, shape (k,)."""

    stale: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Outcome of a cancel: for each message a CancelOutcome of the protocol, whose first are the wheel's."""

    outcomes: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class Rescheduled:
    """Outcome of a reschedule, for each message; columns of shape (n,)."""

    outcomes: NDArray[np.uint8]
    """A ChangeOutcome of the protocol, or MOVED_MEANWHILE: it rests elsewhere than its record was read."""
    due_ms: NDArray[np.int64]
    """When it is due now; 0 where it is not pending."""


@dataclass(frozen=True, slots=True)
class Subscribed:
    """Outcome of a subscribe: the numbers of the topic's queue and of the group's retry queue."""

    queue: int
    retry_queue: int


@dataclass(frozen=True, slots=True)
class Recurred:
    """Outcome of a change of a schedule that recurs."""

    number: int
    """Of the schedule."""
    changed: bool
    """False: it was so already."""


@dataclass(frozen=True, slots=True)
class Fired:
    """Outcome of a fire command: for each plan the last entry of the schedule's history.

    None: the plan was made before a change of its schedule, and was not applied.
    """

    last: tuple[log_pb.FireCheckpoint | None, ...]


@dataclass(frozen=True, slots=True)
class Transacted:
    """Outcome of a prepare, and of the end of a transaction."""

    state: log_pb.TransactionCheckpoint
    """Of the transaction as it is now."""
    repeated: bool
    """It was so already."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Outcome of the end of a transaction whose half message rests elsewhere: the leader reads it again."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Outcome of a check command: for each check the transaction as it is now; None where it has moved on."""

    states: tuple[log_pb.TransactionCheckpoint | None, ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """Outcome of an operator's command: what was there before, in numbers."""

    count: int = 0
    groups: int = 0
    pending: int = 0
    recurring: int = 0


Outcome: TypeAlias = (
    Scheduled
    | Repeated
    | Released
    | Acked
    | Cancelled
    | Rescheduled
    | Subscribed
    | Recurred
    | Fired
    | Transacted
    | Moved
    | Checked
    | Changed
    | Refusal
)
