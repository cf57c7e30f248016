"""Pages of what is pending of some queues, hour by hour: each is looked at in one turn of the event loop."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tarry.wheel.messages import Page
from tarry.wheel.state import HOUR_MS
from tarry.wheel.wheel import Wheel

PAGE_UNITS: Final = 8_192
"""Looked at in one turn of the event loop: some 1 ms."""
HOUR_NS: Final = 200_000
UNIT_NS: Final = 50

Numbers = NDArray[np.uint32]


class Place(NamedTuple):
    """A place in the hours, from which a walk goes on."""

    hour: int
    place: int


class PendingPage(NamedTuple):
    """Pending messages of an hour, as they were when it was looked at."""

    hour: int
    page: Page
    ids: tuple[Numbers, Numbers]
    """Of the messages, which they keep: hours and global indices, each of shape (n,)."""
    next: Place
    spent_ns: int
    """CPU time, as estimated."""


def next_page(
    wheel: Wheel, numbers: Numbers, at: Place, due_from_ms: int = 0, due_to_ms: int | None = None
) -> PendingPage | None:
    """Return the next page of what is pending of queues, by number, from a place on; None: that was all.

    Of messages due from one time on, before another, whole hours. Raises OSError and WheelDamaged.
    """
    if not wheel.pending_of_all(numbers):
        return None
    hour = wheel.next_pending_hour(max(at.hour, max(due_from_ms, wheel.cut.due_ms) // HOUR_MS))
    if hour is None or (due_to_ms is not None and hour * HOUR_MS >= due_to_ms):
        return None
    units = wheel.units_in_hour(hour)
    place = min(at.place, units) if hour == at.hour else 0
    page = wheel.pending_page(hour, numbers, place, PAGE_UNITS)
    ids = wheel.ids_of(np.full(len(page.global_index), hour, np.uint32), page.global_index)
    behind = Place(hour, page.end) if page.end < units else Place(hour + 1, 0)
    return PendingPage(hour, page, ids, behind, HOUR_NS + UNIT_NS * (page.end - place))
