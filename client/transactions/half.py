"""Values of transactions: what was prepared, how it ends, and what is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tarry.proto import tarry_transaction_pb2 as pb


class TransactionEnd(StrEnum):
    """Answer of a check handler: how the transaction ended."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"
    """Not known yet: the cluster asks again later."""


class TransactionState(StrEnum):
    """State of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    UNRESOLVED = "unresolved"
    """Rolled back after its last check: its message is in dlq.transactions.TOPIC."""

    @classmethod
    def of(cls, state: pb.TransactionState) -> TransactionState:
        """Return the state of the protocol's number."""
        return cls(pb.TransactionState.Name(state).removeprefix("TRANSACTION_STATE_").lower())


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """A transaction, as the cluster tells of it. Times are ms since the epoch."""

    number: int
    producer_group: str
    name: str
    topic: str
    state: TransactionState
    prepared_ms: int
    due_ms: int | None
    """Of the message, as it was given; None: it has a delay."""
    delay_ms: int | None
    """From the commit, as it was given; None: it has a due time."""
    checks: int
    """Asked so far."""
    next_check_ms: int
    """Of an open one; else 0."""
    ended_ms: int
    """0: it is open."""
    id: str
    """Of the message of a committed one; else empty."""
    message_due_ms: int
    """Likewise; 0."""

    @classmethod
    def of(cls, told: pb.Transaction) -> TransactionInfo:
        """Return what the protocol's message says."""
        return cls(
            number=told.number,
            producer_group=told.producer_group,
            name=told.transaction,
            topic=told.topic,
            state=TransactionState.of(told.state),
            prepared_ms=told.prepared_ms,
            due_ms=told.due_ms if told.HasField("due_ms") else None,
            delay_ms=told.delay_ms if told.HasField("delay_ms") else None,
            checks=told.checks,
            next_check_ms=told.next_check_ms,
            ended_ms=told.ended_ms,
            id=told.id,
            message_due_ms=told.message_due_ms,
        )


@dataclass(frozen=True, slots=True)
class TransactionPage:
    """A page of transactions."""

    transactions: tuple[TransactionInfo, ...]
    next_after: int
    """For the next page; 0: this is the last."""
    open: int
    """Open transactions of all topics and producer groups."""


@dataclass(frozen=True, slots=True)
class Half:
    """A half message that a check asks about."""

    transaction: TransactionInfo
    body: bytes
    tags: tuple[str, ...]
    keys: tuple[str, ...]
    properties: Mapping[str, str]
    ordering_key: str

    @property
    def name(self) -> str:
        """The transaction's name, by which the application finds what it did."""
        return self.transaction.name

    @property
    def topic(self) -> str:
        """The message's topic."""
        return self.transaction.topic

    @classmethod
    def of(cls, check: pb.Check) -> Half:
        """Return what the protocol's message says."""
        record = check.record
        return cls(
            TransactionInfo.of(check.transaction),
            record.body,
            tuple(record.tags),
            tuple(record.keys),
            dict(record.properties),
            record.ordering_key,
        )
