"""Orders of events that the table of a message's life forbids, derived from proto/lifecycle.py.

An event that no path of the table reaches after another may not follow it; an event that every path to
another passes must have happened before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from tarry.proto.ledger.schema import REPLICATED, Kind
from tarry.proto.lifecycle import TRANSITIONS, Event, State

EVENTS: Final = {
    Kind.SCHEDULED: Event.SCHEDULE,
    Kind.CANCELLED: Event.CANCEL,
    Kind.RELEASED: Event.RELEASE,
    Kind.DELIVERED: Event.DELIVER,
    Kind.ACKED: Event.ACK,
    Kind.RETRIED: Event.NACK,  # or LEASE_EXPIRE, which leads to the same state
    Kind.DEAD: Event.ATTEMPTS_END,
}
"""The kinds of rows that are events of the table."""

OF_MESSAGE: Final = frozenset({Kind.SCHEDULED, Kind.CANCELLED, Kind.RELEASED})
"""The kinds that happen to a message for all its groups at once; the release of a retry's copy is not in
them.
"""


def _moves() -> Iterable[tuple[State | None, Event, State]]:
    for (state, event), following in TRANSITIONS.items():
        yield state, event, following
        if event is Event.RELEASE and following is State.RELEASED:
            yield State.RELEASED, event, State.READY  # RELEASED is where each group's READY begins


def _reachable(states: Iterable[State | None], without: Event | None = None) -> set[Event]:
    """Return the events that can happen from the states on; never passing `without`."""
    known, events, waiting = set(states), set[Event](), list(states)
    while waiting:
        state = waiting.pop()
        for origin, event, following in _moves():
            if origin is state and event is not without:
                events.add(event)
                if following not in known:
                    known.add(following)
                    waiting.append(following)
    return events


@cache
def never_after(kind: Kind) -> frozenset[Kind]:
    """Return the kinds that may not follow a row of this kind."""
    event = EVENTS[kind]
    targets = {following for _, one, following in _moves() if one is event}
    if kind is Kind.RELEASED:
        targets.add(State.READY)
    later = _reachable(targets)
    if kind in OF_MESSAGE:  # the table has one RELEASE, of the message and of its retries' copies
        later.discard(event)
    return frozenset(other for other, of in EVENTS.items() if of not in later)


@cache
def always_before(kind: Kind) -> frozenset[Kind]:
    """Return the replicated kinds without which a row of this kind cannot be."""
    event = EVENTS[kind]
    return frozenset(
        other
        for other, of in EVENTS.items()
        if other is not kind and other in REPLICATED and event not in _reachable({None}, without=of)
    )


def breaks_the_table(whole: Column, *, of_group: bool) -> Column:
    """Return whether what happened to a message is not in the table; predicate on facts.

    `whole`: the ledgers have everything, so that what is missing did not happen. `of_group`: judge the events
    that are not both of the message as a whole; else those that are.
    """
    broken = F.lit(False)
    for kind in EVENTS:
        judged = {other for other in EVENTS if ({kind, other} <= OF_MESSAGE) is not of_group}
        for other in sorted(never_after(kind) & judged):
            broken = broken | _follows(kind, other)
        for other in sorted(always_before(kind) & judged):
            broken = broken | (whole & (F.col(kind.value) > 0) & (F.col(other.value) == 0))
    return broken


def _follows(kind: Kind, other: Kind) -> Column:
    if kind is other:
        return F.col(kind.value) > 1
    return F.coalesce(F.col(f"{kind.value}_first") < F.col(f"{other.value}_last"), F.lit(False))
