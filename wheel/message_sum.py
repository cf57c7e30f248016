"""A sum over messages that says whether two replicas have the same ones, in no order and wherever they lie.

Each message adds a hash of its place and its unit, one more when the cut is to pass it over, one more when it
has overtaken, one more when it is withdrawn, and one of its id and its place when it is moved, all modulo
2**64: an append or a cancel changes the sum by its own messages only, and a message that goes from the far
log to its hour's partition does not change it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tarry.wheel.state import Numbers, Rows

_BITS: Final = (1 << 64) - 1
_ID, _DUE, _RECORD, _MASK = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93
_STORED, _GONE, _OVERTAKEN = 0x27D4EB2F165667C5, 0x85EBCA77C2B2AE63, 0xFF51AFD7ED558CCD
_WITHDRAWN: Final = 0xB492B66FBE98F273
_MOVED: Final = 0x9FB21C651E98DF25
_MIX: Final = 0xBF58476D1CE4E5B9


class MessageSum:
    """A sum that many add to."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, some: int) -> None:
        """Add the sum of some messages, or take it off where it is negative."""
        self.value = (self.value + some) & _BITS


def of_units(hour: int | Numbers, global_index: Numbers, units: Rows) -> int:
    """Return the sum of units, UNIT[n] or FAR_UNIT[n]; of one hour or of an hour each."""
    if len(units) == 1:
        at, unit = int(hour if isinstance(hour, int) else hour[0]), units[0]
        mixed = (at << 32 | int(global_index[0])) * _ID + _STORED
        mixed += (int(unit["due_in_hour_ms"]) << 32 | int(unit["topic"])) * _DUE
        mixed += (int(unit["size"]) << 32 | int(unit["crc32c"])) * _RECORD + int(unit["tag_mask"]) * _MASK
        return _mixed(mixed & _BITS)
    column = _joined(hour, global_index) * np.uint64(_ID) + np.uint64(_STORED)
    column += _joined(units["due_in_hour_ms"], units["topic"]) * np.uint64(_DUE)
    column += _joined(units["size"], units["crc32c"]) * np.uint64(_RECORD)
    column += units["tag_mask"] * np.uint64(_MASK)
    return _summed(column)


def of_gone(hour: int | Numbers, global_index: Numbers) -> int:
    """Return the addend of places of shape (n,) that the cut is to pass over."""
    return _of_places(hour, global_index, _GONE)


def of_overtaken(hour: int | Numbers, global_index: Numbers) -> int:
    """Return the addend of places of shape (n,) that have overtaken."""
    return _of_places(hour, global_index, _OVERTAKEN)


def of_withdrawn(hour: int | Numbers, global_index: Numbers) -> int:
    """Return the addend of places of shape (n,) that were cancelled after their release."""
    return _of_places(hour, global_index, _WITHDRAWN)


def of_moved(ids: NDArray[np.uint64], places: NDArray[np.uint64]) -> int:
    """Return the addend of moved messages of shape (n,), each hour << 32 | global index."""
    return _summed(ids * np.uint64(_ID) + places * np.uint64(_RECORD) + np.uint64(_MOVED))


def _of_places(hour: int | Numbers, global_index: Numbers, kind: int) -> int:
    return _summed(_joined(hour, global_index) * np.uint64(_ID) + np.uint64(kind))


def _joined(high: int | Numbers, low: Numbers) -> NDArray[np.uint64]:
    above = np.uint64(high << 32) if isinstance(high, int) else high.astype(np.uint64) << np.uint64(32)
    return low.astype(np.uint64) | above


def _mixed(number: int) -> int:
    number = (number ^ number >> 32) * _MIX & _BITS
    return number ^ number >> 29


def _summed(column: NDArray[np.uint64]) -> int:
    column ^= column >> np.uint64(32)
    column *= np.uint64(_MIX)
    column ^= column >> np.uint64(29)
    return int(column.sum(dtype=np.uint64))
