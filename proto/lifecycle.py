"""The life of a message, as one table.

A property test holds the events of the state machine to it
(tests/replication/state_machine/test_lifecycle.py), and the reconciliation derives
its checks from it (spark/checks/lifecycle.py). Moves of a group, redrives, misfires,
what retention lets expire for a group, the cancelling of a retry or for some groups alone, and the deletion
of a topic are not in it.

    scheduled ─► PENDING ─► RELEASED ─► (each group) READY ─► IN_HAND ─► ACKED
                    │           │                    ▲ ▲         ├─► RETRYING ─► READY, in the retry queue
                    └─► CANCELLED, no group has it   │ └─────────┤
                                                 failover        └─► DEAD ─► its dead-letter topic

A message that is PENDING, or RETRYING in a group, may be rescheduled, and stays so.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """State of a message; from READY on, for one consumer group."""

    PENDING = "pending"
    CANCELLED = "cancelled"
    RELEASED = "released"
    READY = "ready"
    IN_HAND = "in_hand"
    ACKED = "acked"
    RETRYING = "retrying"
    DEAD = "dead"


class Event(StrEnum):
    """Cause of a transition."""

    SCHEDULE = "schedule"
    CANCEL = "cancel"
    RESCHEDULE = "reschedule"
    RELEASE = "release"
    DELIVER = "deliver"
    ACK = "ack"
    NACK = "nack"
    LEASE_EXPIRE = "lease_expire"
    ATTEMPTS_END = "attempts_end"
    FAILOVER = "failover"


TRANSITIONS: Final[dict[tuple[State | None, Event], State]] = {
    (None, Event.SCHEDULE): State.PENDING,
    (State.PENDING, Event.CANCEL): State.CANCELLED,
    (State.PENDING, Event.RESCHEDULE): State.PENDING,
    (State.PENDING, Event.RELEASE): State.RELEASED,
    (State.RELEASED, Event.CANCEL): State.CANCELLED,
    (State.READY, Event.DELIVER): State.IN_HAND,
    (State.IN_HAND, Event.ACK): State.ACKED,
    (State.IN_HAND, Event.NACK): State.RETRYING,
    (State.IN_HAND, Event.LEASE_EXPIRE): State.RETRYING,
    (State.IN_HAND, Event.ATTEMPTS_END): State.DEAD,
    (State.IN_HAND, Event.FAILOVER): State.READY,
    (State.RETRYING, Event.RESCHEDULE): State.RETRYING,
    (State.RETRYING, Event.RELEASE): State.READY,
}
"""(state, event) -> next state; a pair that is not here does not happen.
From RELEASED on, the message is READY for each group of its topic."""
