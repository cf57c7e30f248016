"""Columns split into groups of equal keys, with one statement per group and none per row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Selection: TypeAlias = slice | NDArray[np.intp]
Item = TypeVar("Item")
Number = TypeVar("Number", bound=np.integer[Any])


def starts_of(column: NDArray[Any]) -> NDArray[np.intp]:
    """Return the positions at which runs of equal values begin."""
    begins = np.ones(len(column), np.bool_)
    np.not_equal(column[1:], column[:-1], out=begins[1:])
    return np.flatnonzero(begins)


def distinct(numbers: NDArray[Number]) -> NDArray[Number]:
    """Return each number once, ascending; np.unique's first use costs 15 ms."""
    ascending = np.sort(numbers)
    return ascending[starts_of(ascending)] if len(ascending) else ascending


def first_rows(keys: NDArray[Any]) -> NDArray[np.intp]:
    """Return the first row of each distinct key, by ascending key."""
    if bool((keys[1:] > keys[:-1]).all()):
        return np.arange(len(keys))
    order = np.argsort(keys, kind="stable")
    return order[starts_of(keys[order])]


def groups(keys: NDArray[Any]) -> Iterator[tuple[int, Selection]]:
    """Yield each distinct key, ascending, with its rows in their order: a slice where they lie together."""
    if len(keys) == 0:
        return
    if keys[0] == keys[-1] and bool((keys == keys[0]).all()):
        yield int(keys[0]), slice(0, len(keys))
        return
    order = None
    if bool((keys[1:] < keys[:-1]).any()):
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
    starts = starts_of(keys)
    ends = [*starts[1:].tolist(), len(keys)]
    for key, start, end in zip(keys[starts].tolist(), starts.tolist(), ends, strict=True):
        yield key, slice(start, end) if order is None else order[start:end]


def pick(items: Sequence[Item], rows: Selection) -> Sequence[Item]:
    """Return the items of some rows."""
    if isinstance(rows, slice):
        return items if rows == slice(0, len(items)) else items[rows]
    if len(rows) == 1:
        return [items[rows[0]]]
    return itemgetter(*rows.tolist())(items)  # type: ignore[no-any-return]


def portions(sizes: NDArray[np.uint32], bytes_max: int) -> Iterator[slice]:
    """Yield consecutive rows whose sizes add up to at most `bytes_max`; one row that is larger goes alone."""
    ends = np.cumsum(sizes, dtype=np.int64)
    start, before = 0, 0
    while start < len(sizes):
        end = max(start + 1, int(np.searchsorted(ends, before + bytes_max, side="right")))
        yield slice(start, end)
        start, before = end, int(ends[end - 1])
