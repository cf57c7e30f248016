"""Pairs of 64-bit numbers, sorted by the first, in blocks: 16 bytes a pair, however many there are.

    lows     0          4711              90210
    blocks   [3, 17 …]  [4711, 4800 …]    [90210 …]      at most BLOCK_PAIRS each

A change copies the blocks that it touches, and blocks that somebody holds stay as they were; where the number
of blocks changes, it copies `lows`, too: 8 bytes a block.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tarry.wheel.columns import groups
from tarry.wheel.state import Flags

BLOCK_PAIRS: Final = 4_096

Keys: TypeAlias = NDArray[np.uint64]


class Pairs(NamedTuple):
    """Columns of shape (n,), by ascending key, each once."""

    key: Keys
    value: Keys


NO_PAIRS: Final = Pairs(np.empty(0, np.uint64), np.empty(0, np.uint64))


class SortedPairs:
    """A value for each key."""

    __slots__ = ("_blocks", "_count", "_lows")

    def __init__(self, pairs: Pairs = NO_PAIRS) -> None:
        self._blocks: list[Pairs] = []
        self._lows = np.empty(0, np.uint64)
        self._count = 0
        self._splice(0, 0, _cut(pairs))

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return bool(self._blocks)

    @property
    def blocks(self) -> tuple[Pairs, ...]:
        """All pairs, by ascending key; what comes later changes none of these."""
        return tuple(self._blocks)

    def find(self, keys: Keys) -> tuple[Keys, Flags]:
        """Return the values of keys, shape (n,), and flags of those that have one."""
        values, found = np.zeros(len(keys), np.uint64), np.zeros(len(keys), np.bool_)
        if self._blocks:
            for number, rows in groups(self._places(keys)):
                block, wanted = self._blocks[number], keys[rows]
                at = np.minimum(np.searchsorted(block.key, wanted), len(block.key) - 1)
                values[rows], found[rows] = block.value[at], block.key[at] == wanted
        return values, found

    def put(self, keys: Keys, values: Keys) -> None:
        """Set the values of keys, shape (n,), which are distinct."""
        order = np.argsort(keys)
        keys, values = keys[order], values[order]
        changed = {
            number: _merged(
                self._blocks[number] if self._blocks else NO_PAIRS, Pairs(keys[rows], values[rows])
            )
            for number, rows in groups(self._places(keys))
        }
        self._replace(changed)

    def remove(self, keys: Keys) -> None:
        """Remove those of the keys, shape (n,), that are there."""
        if not self._blocks:
            return
        changed = {}
        for number, rows in groups(self._places(keys)):
            block = self._blocks[number]
            kept = ~np.isin(block.key, keys[rows])
            if not bool(kept.all()):
                changed[number] = Pairs(block.key[kept], block.value[kept])
        self._replace(changed)

    def cut(self, begin: int, end: int) -> list[Pairs]:
        """Remove the pairs with keys from `begin` on, before `end`; return them, by ascending key."""
        if not self._blocks:
            return []
        first, last = self._places(np.array([begin, end - 1], np.uint64)).tolist()
        gone = self._blocks[first : last + 1]
        low = int(np.searchsorted(gone[0].key, np.uint64(begin)))
        high = int(np.searchsorted(gone[-1].key, np.uint64(end)))
        left = _part(gone[0], slice(low)), _part(gone[-1], slice(high, None))
        gone[-1] = _part(gone[-1], slice(high))
        gone[0] = _part(gone[0], slice(low, None))
        if any(len(block.key) for block in gone):
            # copies, for a view would keep what is gone in memory
            copies = [Pairs(block.key.copy(), block.value.copy()) for block in left if len(block.key)]
            self._splice(first, last + 1, copies)
        return gone

    def keep(self, number: int, kept: Flags) -> None:
        """Keep only some pairs of a block, by its place among all."""
        block = self._blocks[number]
        self._replace({number: Pairs(block.key[kept], block.value[kept])})

    def _places(self, keys: Keys) -> NDArray[np.intp]:
        """Return the block of each key, whether or not it is there."""
        return np.maximum(np.searchsorted(self._lows, keys, side="right") - 1, 0)

    def _replace(self, changed: dict[int, Pairs]) -> None:
        for number in sorted(changed, reverse=True):  # so that the numbers still to come stay the same
            self._splice(number, number + 1, _cut(changed[number]))

    def _splice(self, begin: int, end: int, blocks: list[Pairs]) -> None:
        """Put blocks in the place of those from `begin` on, before `end`."""
        self._count += sum(len(block.key) for block in blocks)
        self._count -= sum(len(block.key) for block in self._blocks[begin:end])
        lows = np.fromiter((block.key[0] for block in blocks), np.uint64, len(blocks))
        if len(blocks) == min(end, len(self._blocks)) - begin:
            self._lows[begin:end] = lows
        else:
            self._lows = np.concatenate((self._lows[:begin], lows, self._lows[end:]))
        self._blocks[begin:end] = blocks


def _part(block: Pairs, rows: slice) -> Pairs:
    return Pairs(block.key[rows], block.value[rows])


def _merged(block: Pairs, more: Pairs) -> Pairs:
    """Return a block with more pairs, whose values replace its own."""
    there = np.isin(block.key, more.key)
    if bool(there.any()):
        block = Pairs(block.key[~there], block.value[~there])
    at = np.searchsorted(block.key, more.key)
    return Pairs(np.insert(block.key, at, more.key), np.insert(block.value, at, more.value))


def _cut(pairs: Pairs) -> list[Pairs]:
    """Return pairs as blocks: one, or where they are too many of at most three quarters of the bound."""
    count = len(pairs.key)
    if count <= BLOCK_PAIRS:
        return [pairs] if count else []
    parts = -(-count // (BLOCK_PAIRS * 3 // 4))
    keys, values = np.array_split(pairs.key, parts), np.array_split(pairs.value, parts)
    return [Pairs(key.copy(), value.copy()) for key, value in zip(keys, values, strict=True)]
