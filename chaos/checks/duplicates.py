"""Checks for messages that were delivered, released or scheduled more than once.

After a crash of the leader, only the deliveries of its last moments may be repeated to a consumer that is
still there; after a planned transfer, none. A repeated delivery is marked. A message is released once,
whatever happens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tarry.chaos.checks.frozen import moment_of
from tarry.chaos.history import Delivered, History, Span


def repeats(
    history: History, group: str, windows: Sequence[Span] = (), travel_ms: int = 100
) -> tuple[Delivered, ...]:
    """Return deliveries after the first to a group whose consumers acknowledge at once and stay, but for
    those whose first one is in a window.

    `windows`: when a leader that was then lost could deliver without its successor learning of it.
    """
    moment = moment_of(history, travel_ms)
    first = history.first_deliveries()
    return tuple(
        one
        for one in history.later_deliveries()
        if one.group == group
        and not any(start <= moment(first[group, one.token]) <= end for start, end in windows)
    )


def unmarked(history: History) -> tuple[Delivered, ...]:
    """Return deliveries marked as the first of a message to their group that are not; see `unmarked_rows`."""
    numbers: dict[tuple[str, str, str], int] = {}
    messages = [numbers.setdefault((one.group, one.topic, one.id), len(numbers)) for one in history.delivered]
    terms = [one.term for one in history.delivered]
    marked = [one.attempt > 1 or one.maybe_duplicate for one in history.delivered]
    rows = unmarked_rows(np.array(messages), np.array(terms), np.array(marked, dtype=np.bool_))
    return tuple(history.delivered[row] for row in rows)


def unmarked_rows(
    messages: NDArray[np.integer], terms: NDArray[np.integer], marked: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Return the rows of one group's deliveries that repeat a message without a mark, ascending.

    No clock decides which of two deliveries came first: a leader marks a message that its predecessor may
    have delivered, even if the predecessor's delivery arrives later; of one leader's deliveries of a message
    only one may be unmarked. `messages` are numbers; `terms` are those of the leaders that delivered.
    """
    order = np.lexsort((marked, terms, messages))
    again = np.diff(messages[order]) == 0
    return np.sort(order[1:][again & ~marked[order][1:]])


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
