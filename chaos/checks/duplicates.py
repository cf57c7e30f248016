"""What came or was scheduled twice: how often, and what of it no bound allows.

After a crash of a leader, only what it handed over in its last moments may be delivered again to a consumer
that is still there; after a planned transfer, nothing. What does come again says so. A message is released
once, whatever happens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tarry.chaos.checks.frozen import moment_of
from tarry.chaos.history import Delivered, History, Span


@dataclass(frozen=True, slots=True)
class Repeats:
    """Deliveries beyond the first; `beyond` are those whose first one is in no window."""

    duplicates: tuple[Delivered, ...]
    beyond: tuple[Delivered, ...]


def repeats(history: History, group: str, windows: Sequence[Span], travel_ms: int = 100) -> Repeats:
    """Return the duplicates of a group whose consumers acknowledge at once and stay.

    `windows`: when a leader that was then lost could hand over without its successor learning of it.
    """
    moment = moment_of(history, travel_ms)
    first = history.first_deliveries()
    again = [one for one in history.delivered if one.group == group and first[group, one.token] is not one]
    beyond = [
        one
        for one in again
        if not any(start <= moment(first[group, one.token]) <= end for start, end in windows)
    ]
    return Repeats(tuple(again), tuple(beyond))


def unmarked(history: History) -> tuple[Delivered, ...]:
    """Return deliveries that say they are a message's first to their group, and are not.

    Which of two came first is told without a clock: a leader hands over a message of its predecessor's
    marked, whenever that one's copy comes through; and of one leader's copies one alone may be unmarked.
    """
    given: defaultdict[tuple[str, str, str], list[Delivered]] = defaultdict(list)
    for one in history.delivered:
        given[one.group, one.topic, one.id].append(one)
    found = []
    for of_one in given.values():
        first = min(one.term for one in of_one)
        bare = [one for one in of_one if one.attempt <= 1 and not one.maybe_duplicate]
        found += [one for one in bare if one.term > first] + [one for one in bare if one.term == first][1:]
    return tuple(found)


def released_twice(history: History) -> tuple[Delivered, ...]:
    """Return deliveries of a message's first attempt from another place of the ready queue than before.

    A release is one log entry, and gives the message one offset. A retry lies in another queue.
    """
    places: dict[tuple[str, int], tuple[int, int]] = {}
    return tuple(
        delivery
        for delivery in history.delivered
        if delivery.attempt <= 1
        and places.setdefault((delivery.topic, delivery.token), (delivery.queue, delivery.offset))
        != (delivery.queue, delivery.offset)
    )


def answered_differently(history: History) -> tuple[int, ...]:
    """Return the tokens whose repeated request was given another id: scheduled twice."""
    return tuple(one.token for one in history.repeated if one.first_id != one.second_id)
