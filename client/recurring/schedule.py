"""A schedule that recurs as the cluster tells of it, and its fires."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tarry.client.recurring.specification import Specification
from tarry.proto import tarry_recurring_pb2 as pb


class FireOutcome(StrEnum):
    """Outcome of a fire."""

    FIRED = "fired"
    """It made a message."""
    TRIGGERED = "triggered"
    """It was asked for, and made a message."""
    SKIPPED = "skipped"
    """The message of the fire before was not settled, and the schedule says to skip."""
    MISSED = "missed"
    """The cluster came to it too late, and the schedule does not have it fire then."""
    QUEUED = "queued"
    """It waits until the message of the fire before is settled; an entry of its own tells of its message."""
    CANCELLED = "cancelled"
    """Its message was pending when the schedule was paused, changed or deleted."""
    UNSPECIFIED = "unspecified"
    """This client does not know the outcome yet."""

    @classmethod
    def of(cls, number: int) -> FireOutcome:
        """Return the outcome of a number in the protocol."""
        return _OUTCOMES.get(number, cls.UNSPECIFIED)


_OUTCOMES: Final = {pb.FireOutcome.Value(f"FIRE_OUTCOME_{one.name}"): one for one in FireOutcome}


@dataclass(frozen=True, slots=True)
class Fire:
    """An entry of a schedule's history; times are milliseconds since the epoch."""

    outcome: FireOutcome
    fire_ms: int
    """The time that the schedule names, without jitter; of several missed or skipped fires, of the last."""
    id: str
    """Of the message; empty: there is none."""
    due_ms: int | None
    """Of the message."""
    decided_ms: int
    """Cluster time at which the leader decided it."""
    fires: int
    """Missed or skipped one after another that this entry stands for; else 1."""

    @classmethod
    def of(cls, told: pb.Fire) -> Fire:
        """Return an entry of an answer."""
        due_ms = told.due_ms if told.id else None
        outcome = FireOutcome.of(told.outcome)
        return cls(outcome, told.fire_ms, told.id, due_ms, told.decided_ms, max(1, told.fires))


@dataclass(frozen=True, slots=True)
class RecurringSchedule:
    """A schedule that recurs, as of when the cluster answered; times are milliseconds since the epoch."""

    name: str
    spec: Specification
    number: int
    """Of the schedule: one created later under the same name has another."""
    revision: int
    """Grows by one with each put, pause and resume that changes something, from 1."""
    paused: bool
    created_ms: int
    changed_ms: int
    """Cluster time at which the revision last grew."""
    next_ms: int | None
    """The next fire, without jitter; None: none comes, or the leader is still working it out."""
    ended: bool
    """No fire comes any more."""
    waiting_ms: int | None
    """The fire that waits until the message of the one before is settled; None: none does."""
    fired: int
    """Messages by fires, without triggered ones."""
    triggered: int
    skipped: int
    missed: int
    """Fires that were missed and have not fired."""
    history: tuple[Fire, ...]
    """The newest first; in a listing only the newest."""

    @classmethod
    def of(cls, told: pb.Recurring) -> RecurringSchedule:
        """Return a schedule of an answer."""
        return cls(
            told.name,
            Specification.of(told.spec),
            told.number,
            told.revision,
            told.paused,
            told.created_ms,
            told.changed_ms,
            told.next_ms or None,
            told.ended,
            told.waiting_ms or None,
            told.fired,
            told.triggered,
            told.skipped,
            told.missed,
            tuple(map(Fire.of, told.history)),
        )

    @property
    def state(self) -> str:
        """``paused``, ``ended``, ``waiting`` for the message of the last fire, or ``active``."""
        if self.paused:
            return "paused"
        if self.ended:
            return "ended"
        return "waiting" if self.waiting_ms is not None else "active"


@dataclass(frozen=True, slots=True)
class SchedulePage:
    """A page of a listing, by name; may be shorter than asked for, and more follow."""

    schedules: tuple[RecurringSchedule, ...]
    cursor: str
    """For the next page; empty: there is none."""
    total: int
    """Schedules of the cluster."""

    @classmethod
    def of(cls, told: pb.ListRecurringResponse) -> SchedulePage:
        """Return the answer to one request."""
        return cls(tuple(map(RecurringSchedule.of, told.recurring)), told.cursor, told.total)


@dataclass(frozen=True, slots=True)
class Triggered:
    """The message of a fire that was asked for."""

    id: str
    due_ms: int
    triggered: int
    """How often the schedule was triggered, this time included."""


@dataclass(frozen=True, slots=True)
class NextFires:
    """Fires to come, without jitter; of a paused schedule as if it were resumed now."""

    times_ms: tuple[int, ...]
    local: tuple[str, ...]
    """The same times in the schedule's zone, ISO 8601 with the offset."""
    ended: bool
    """No fire comes after these."""

    @classmethod
    def of(cls, told: pb.NextFiresResponse) -> NextFires:
        """Return the answer to one request."""
        return cls(tuple(told.fire_ms), tuple(told.local), told.ended)
