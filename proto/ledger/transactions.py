"""Detail of the rows of transactions: of half messages, of what became of them.

HALF <number> <producer group> <name>                  prepared
COMMITTED <number> <producer group> <name>             scheduled: the message
ROLLED_BACK <number> <producer group> <name>           rolled_back: by a producer, or an operator
UNRESOLVED <number> <producer group> <name>            rolled_back: after the last check
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class TransactionEvent(StrEnum):
    """Event of a transaction: the first word of a detail."""

    HALF = "HALF"
    COMMITTED = "COMMITTED"
    ROLLED_BACK = "ROLLED_BACK"
    UNRESOLVED = "UNRESOLVED"


class TransactionDetail(NamedTuple):
    """A transaction, and what happened to it."""

    event: TransactionEvent
    number: int
    producer_group: str
    name: str


def detail_of(told: TransactionDetail) -> str:
    """Return the detail of a row."""
    return f"{told.event} {told.number} {told.producer_group} {told.name}"


def transaction_in(detail: str | None) -> TransactionDetail | None:
    """Return what such a detail says; None: it is of something else."""
    match (detail or "").split(" "):
        case [event, number, producer_group, name] if event in TransactionEvent.__members__:
            return TransactionDetail(TransactionEvent(event), int(number), producer_group, name)
        case _:
            return None
