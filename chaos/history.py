"""Observations of producers, consumers and operators, as values: the input of every check.

A message is known by its token, a number that the producer makes up and puts into the body; so a message
whose answer was lost can be told from one that never was. Times are read by whoever records: `*_ms` on the
wall clock (milliseconds since the epoch), `*_mono_ms` on the monotonic clock of this machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import NamedTuple


class Answer(StrEnum):
    """The outcome of a schedule as its producer knows it."""

    ACKNOWLEDGED = auto()
    REFUSED = auto()  # definitely not scheduled
    UNKNOWN = auto()  # no answer: may or may not have been scheduled


@dataclass(frozen=True, slots=True)
class Sent:
    """One message as its producer knows it; `due_ms` is the earliest that it asked for."""

    token: int
    topic: str
    due_ms: int
    sent_ms: int
    sent_mono_ms: int
    answer: Answer = Answer.UNKNOWN
    answered_ms: int = 0
    answered_mono_ms: int = 0
    id: str = ""  # of an acknowledged one
    acknowledged_due_ms: int = 0  # as the server answered
    reason: str = ""  # of a refusal, or why there was no answer
    key: str = ""  # of messages that are to come in order


@dataclass(frozen=True, slots=True)
class Delivered:
    """One delivery as a consumer knows it."""

    token: int
    topic: str
    group: str
    id: str
    due_ms: int
    attempt: int
    maybe_duplicate: bool
    received_ms: int
    received_mono_ms: int
    consumer: str = ""
    queue: int = 0  # with the offset: which release it comes from
    offset: int = 0
    node: str = ""  # the leader that delivered it, and its term
    term: int = 0
    version: int = 0  # of its body
    delay_ms: int = 0  # of the group, in `due_ms`
    gives_back: bool = False  # the group has put it back for a retry, as RETRYING groups do

    @property
    def due_mono_ms(self) -> int:
        """The due time on the monotonic clock."""
        return self.received_mono_ms - (self.received_ms - self.due_ms)


class Asked(StrEnum):
    """A request about a message whose id is known."""

    CANCEL = auto()
    GET = auto()
    RESCHEDULE = auto()
    UPDATE = auto()
    LIST = auto()  # whether a listing of pending messages has it
    SWEEP = auto()  # a cancel of all that match, of which it is one


CHANGES = (Asked.RESCHEDULE, Asked.UPDATE)


@dataclass(frozen=True, slots=True)
class Operation:
    """One call about a message and its answer; without one (`answered_mono_ms` None) it may still be done."""

    token: int
    asked: Asked
    outcome: (
        str  # a CancelOutcome, ChangeOutcome or MessageState of the client, or not_found; empty: no answer
    )
    sent_mono_ms: int
    answered_mono_ms: int | None
    due_ms: int = 0  # asked for by a reschedule; from which on a listing or a sweep looks
    due_to_ms: int = 0  # and before which; 0: whenever
    if_due_ms: int = 0  # 0: whenever it is due
    version: int = 0  # of the body, asked for by an update
    told_due_ms: int = 0  # when it is due by the answer; 0: that does not say
    told_version: int | None = None


@dataclass(frozen=True, slots=True)
class Sweep:
    """A cancel of all messages that match, once it was done: what may match, and the counts of its answer."""

    tokens: tuple[int, ...]
    matched: int
    cancelled: int
    released: int
    other: int  # unreadable or not found


@dataclass(frozen=True, slots=True)
class Repeated:
    """One request sent again with its producer and sequence: both answers, per message."""

    token: int
    first_id: str
    second_id: str


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """The status that a node reported at a moment."""

    node: str
    at_mono_ms: int
    term: int
    leads: bool  # and may serve
    applied_index: int
    digest: str  # of its state; equal at equal applied index


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A cancel that was answered with CANCELLED or ALREADY_CANCELLED, or, if not certain, had no answer."""

    token: int
    answered_ms: int
    certain: bool = True


@dataclass(frozen=True, slots=True)
class Event:
    """Something done to the cluster."""

    name: str
    node: str
    at_ms: int
    at_mono_ms: int


@dataclass(frozen=True, slots=True)
class PlannedFires:
    """Fires that a schedule is to make: at `start_ms`, one step later and so on, before `end_ms`."""

    schedule: str
    start_ms: int
    step_ms: int
    end_ms: int
    missed: int = 0  # of them, as the schedule itself counts those that its policies have left out
    apart: bool = False  # none while the last one's message is not acknowledged

    def times_ms(self) -> range:
        return range(self.start_ms, self.end_ms, self.step_ms)


@dataclass(frozen=True, slots=True)
class FireSeen:
    """An entry of a schedule's history, as the cluster told it at a look."""

    schedule: str
    outcome: str  # a FireOutcome of the client
    fire_ms: int
    id: str  # of the message; empty: none


@dataclass(frozen=True, slots=True)
class FireMessage:
    """A delivery of a fire's message."""

    schedule: str
    id: str
    due_ms: int
    received_ms: int


@dataclass(frozen=True, slots=True)
class FireAcknowledged:
    """An acknowledgement of a fire's message, as it is about to be sent."""

    id: str
    at_ms: int


@dataclass(slots=True)
class Fires:
    """Schedules that recur, and what was seen of their fires."""

    planned: list[PlannedFires] = field(default_factory=list)
    seen: list[FireSeen] = field(default_factory=list)
    messages: list[FireMessage] = field(default_factory=list)
    acknowledged: list[FireAcknowledged] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Outage:
    """A time of which the cluster may have forgotten all: a majority lost its power soon after."""

    from_mono_ms: int
    to_mono_ms: int
    wall_ms: int  # by which the wall clock was ahead of the monotonic one

    def has(self, at_mono_ms: int) -> bool:
        return self.from_mono_ms <= at_mono_ms <= self.to_mono_ms

    def has_wall(self, at_ms: int) -> bool:
        return self.has(at_ms - self.wall_ms)


class TransactionEnded(NamedTuple):
    """A transaction that has ended, as an answer or a list told it."""

    transaction: str
    state: str  # a TransactionState of the client
    id: str  # of the message of a committed one; else empty
    ended_ms: int  # cluster time


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A delivery of a transaction's message, or of its dead letter."""

    transaction: str
    id: str
    due_ms: int
    received_ms: int


class OpenRead(NamedTuple):
    """A list of open transactions; `begun_s`: when it was asked for, of the monotonic clock."""

    begun_s: float
    transactions: frozenset[str]


@dataclass(slots=True)
class Transactions:
    """Transactions, and what was seen of them."""

    prepared: list[str] = field(default_factory=list)
    """Names of those whose prepare was answered."""
    delays_ms: dict[str, int] = field(default_factory=dict)
    """By name: from the commit to the message's due time."""
    unanswered: list[str] = field(default_factory=list)
    """Names of those of a producer group that answers no checks."""
    database: dict[str, bool] = field(default_factory=dict)
    """By name: whether what the transaction is of has happened; as the program's database says in the end."""
    ended: list[TransactionEnded] = field(default_factory=list)
    answered_s: dict[str, float] = field(default_factory=dict)
    """By name: when an end was answered first, of the monotonic clock."""
    open_reads: list[OpenRead] = field(default_factory=list)
    messages: list[HalfMessage] = field(default_factory=list)
    letters: list[HalfMessage] = field(default_factory=list)


class Done(NamedTuple):
    """An acknowledgement of a delivery that was answered with success."""

    group: str
    token: int
    attempt: int  # of the delivery
    answered_ms: int


@dataclass(slots=True)
class GatewayClients:
    """Clients of RocketMQ at gateways: what they sent, recalled, received and acknowledged themselves."""

    sent: list[Sent] = field(default_factory=list)
    cancelled: list[Cancelled] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    done: list[Done] = field(default_factory=list)
    groups: list[tuple[str, str]] = field(default_factory=list)
    """The (topic, group) pairs that ought to get everything of their topic."""

    def history(self) -> History:
        """Return it as a history of its own: without nodes' names and terms, which clients are not told."""
        return History(self.sent, self.delivered, self.cancelled)


@dataclass(slots=True)
class History:
    """Everything recorded in one run, in the order in which it was recorded."""

    sent: list[Sent] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    cancelled: list[Cancelled] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    repeated: list[Repeated] = field(default_factory=list)
    sweeps: list[Sweep] = field(default_factory=list)
    nodes: list[NodeSeen] = field(default_factory=list)
    fires: Fires = field(default_factory=Fires)
    outages: list[Outage] = field(default_factory=list)
    transactions: Transactions = field(default_factory=Transactions)
    gateway: GatewayClients = field(default_factory=GatewayClients)

    def acknowledged(self) -> Iterator[Sent]:
        return (sent for sent in self.sent if sent.answer is Answer.ACKNOWLEDGED)

    def changed(self) -> frozenset[int]:
        """Return the tokens of messages that may have been changed, or were asked for with others."""
        return frozenset(one.token for one in self.operations if one.asked not in (Asked.CANCEL, Asked.GET))

    def first_deliveries(self) -> dict[tuple[str, int], Delivered]:
        """Return the first delivery of each (group, token), by the monotonic clock."""
        first: dict[tuple[str, int], Delivered] = {}
        for delivery in sorted(self.delivered, key=lambda one: one.received_mono_ms):
            first.setdefault((delivery.group, delivery.token), delivery)
        return first

    def later_deliveries(self) -> tuple[Delivered, ...]:
        """Return the deliveries after the first of each (group, token), retries included, as recorded."""
        first = self.first_deliveries()
        return tuple(one for one in self.delivered if first[one.group, one.token] is not one)


RETRYING = ("rough", "held")
"""Groups whose consumers give messages back, or let leases end: what they have had may wait for a retry."""
Span = tuple[int, int]
"""From, to: ms of the monotonic clock, ends included."""
