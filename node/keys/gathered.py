"""Rows of the key index that are in memory: those that came since the last run was written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from tarry.wheel.keys.run import ROW, Words
from tarry.wheel.state import Rows

RUN_ROWS: Final = 65_536
"""Rows that are worth a run: 1 MiB."""


class Gathered:
    """Rows in arrays of 1 MiB: to add some costs one copy, and to look for a hash one comparison of each.

    Rows never change, so a thread may read the parts while others are added.
    """

    def __init__(self) -> None:
        self._parts: list[Rows] = []
        self._used = RUN_ROWS  # of the last part

    def __len__(self) -> int:
        return max(0, len(self._parts) - 1) * RUN_ROWS + (self._used if self._parts else 0)

    def add(self, rows: Rows) -> None:
        """Take rows in."""
        while len(rows):
            if self._used == RUN_ROWS:
                self._parts.append(np.empty(RUN_ROWS, ROW))
                self._used = 0
            some = rows[: RUN_ROWS - self._used]
            self._parts[-1][self._used : self._used + len(some)] = some
            self._used += len(some)
            rows = rows[len(some) :]

    def parts(self) -> list[Rows]:
        """Return the rows, views of the arrays."""
        return [*self._parts[:-1], *(part[: self._used] for part in self._parts[-1:])]


def find(parts: Iterable[Rows], key_hash: int, first: int, end: int, most: int) -> Words:
    """Return the first `most` places from `first` on, before `end`, of rows with a hash.

    Ascending, each once. For a thread: all rows are looked at.
    """
    found = [np.empty(0, np.uint64)]
    for part in parts:
        places = part["place"][part["hash"] == np.uint64(key_hash)]
        found.append(_smallest(places[(places >= np.uint64(first)) & (places < np.uint64(end))], most))
    return np.unique(np.concatenate(found))[:most]


def _smallest(places: Words, most: int) -> Words:
    """Return the `most` smallest places, each once, ascending: to sort all of them would take long."""
    count = most
    while count < len(places):
        some = np.unique(np.partition(places, count - 1)[:count])
        if len(some) >= most:
            return some[:most]
        count *= 4  # a message that names a key often has a row each time
    return np.unique(places)[:most]
