"""Messages that wait in a feed: rows in the order of due times, and offsets where these are equal."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tarry.replication.state_machine.ready_queue import UNIT

WINDOW: Final = 8_192
"""Units loaded ahead of what is delivered."""

WAITING_MAX: Final = 2 * WINDOW
"""Messages that wait, from which on a hold that is over ends no further: each piece is sorted among them."""

TURN_SORTED_MAX: Final = 4 * WAITING_MAX
"""Messages that one turn sorts among what waits: some 9 ms at worst, where due times repeat in no order."""

TURN_MERGED_MAX: Final = 8 * WAITING_MAX
"""Messages, with those that wait already, that one turn copies behind one another: some 8 ms."""

WAITING: Final = np.dtype([*UNIT.descr, ("offset", "<u8"), ("maybe_duplicate", "u1")])
EMPTY: Final = np.empty(0, dtype=WAITING)


def merged(
    waiting: NDArray[np.void],
    units: NDArray[np.void],
    offsets: NDArray[np.uint64],
    maybe_duplicate: NDArray[np.bool_],
) -> tuple[NDArray[np.void], float]:
    """Return what waits with units (dtype UNIT) and their columns, at least one, and the share of a turn."""
    more = np.empty(len(units), dtype=WAITING)
    for name in UNIT.names or ():
        more[name] = units[name]
    more["offset"] = offsets
    more["maybe_duplicate"] = maybe_duplicate
    ordered = bool(np.all(np.diff(more["due_ms"]) >= 0))
    if len(waiting):
        ordered &= bool(waiting["due_ms"][-1] <= more["due_ms"][0])
        ordered &= bool(waiting["offset"][-1] < more["offset"][0])
        more = np.concatenate([waiting, more])
    share = len(more) / TURN_MERGED_MAX
    if ordered:
        return more, share
    more, sorting = in_order(more)
    return more, share + sorting


def in_order(rows: NDArray[np.void]) -> tuple[NDArray[np.void], float]:
    """Sort by due time and offset rows that are in runs of that order; return the share of a turn as well."""
    share = len(rows) / TURN_SORTED_MAX
    rows = rows[np.argsort(rows["due_ms"], kind="stable")]
    dues, offsets = rows["due_ms"], rows["offset"]
    if np.any((dues[1:] == dues[:-1]) & (offsets[1:] < offsets[:-1])):
        rows = rows[np.lexsort((offsets, dues))]
    return rows, share
