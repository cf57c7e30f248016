"""Moved messages: where each rests, by its id, and whose id is told of what rests there.

    id ──► place      in the checkpoint              get, cancel, a further move: by the id that was given
    place ──► id      made of the others at a start  deliveries, ledger: by where the message was found

A message that is moved gets a new unit, and its old one is gone, as a cancelled one is. Its id stays the one
that its producer was given. However often it moves, there is one pair of them.
A pair is kept until both hours are dropped, the id's and the place's: so the id answers for as long as the
message is there, and never as if it had been cancelled. A place that a message has left again is kept as
the id of nobody until its hour is dropped: else its unit would read as a cancelled message of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from tarry.wheel import message_sum
from tarry.wheel.id_gaps import IdGaps
from tarry.wheel.message_sum import MessageSum
from tarry.wheel.sorted_pairs import NO_PAIRS, Keys, Pairs, SortedPairs
from tarry.wheel.state import NONE, Flags, MovedState, Numbers

SWEPT_BLOCKS: Final = 32
"""Looked at for pairs of dropped hours with each call of `sweep`; one with each move."""
_HALF: Final = np.uint64(32)
_NOBODY: Final = np.uint64(NONE << 32 | NONE)
"""The place of an id that is none: no hour has so many messages, and none is so late."""


class MovedMessages:
    """The moved messages of all hours."""

    __slots__ = ("_dropped", "_gaps", "_ids", "_places", "_swept", "_total")

    def __init__(
        self, dropped: Callable[[Numbers], Flags], total: MessageSum, state: MovedState, gaps: IdGaps
    ) -> None:
        """Take what flags the dropped ones of hours, the sum of all messages, and what `capture` gave.

        `gaps`: from which the ids of messages follow that have not moved.
        """
        self._dropped, self._total, self._gaps = dropped, total, gaps
        ids = [Pairs(*(np.frombuffer(column, "<u8") for column in one)) for one in state]
        self._places = SortedPairs(_all(ids))
        by_place = _all([Pairs(one.value, one.key) for one in ids])
        order = np.argsort(by_place.key)
        order = order[~dropped((by_place.key[order] >> _HALF).astype(np.uint32))]
        order = order[by_place.key[order] != _NOBODY]
        self._ids = SortedPairs(Pairs(by_place.key[order], by_place.value[order]))
        self._swept = 0
        self._total.add(message_sum.of_moved(by_place.value[order], by_place.key[order]))

    def __len__(self) -> int:
        return len(self._places)

    def places(self, hour: Numbers, global_index: Numbers) -> tuple[Numbers, Numbers]:
        """Return where the messages of ids, shape (n,), rest: hours and global indices.

        Of what is no id because a moved message rests there, or did, a place where nothing is.
        """
        first = self._gaps.places(hour, global_index)
        if not self._places:
            return first
        place, moved = self._places.find(_keys(hour, global_index))
        keys = _keys(*first)
        nobody = self._ids.find(keys)[1] & ~moved
        return _columns(np.where(nobody, _NOBODY, np.where(moved, place, keys)))

    def ids(self, hour: Numbers, global_index: Numbers) -> tuple[Numbers, Numbers]:
        """Return the ids of the messages that rest at places, shape (n,): hours and global indices."""
        index = self._gaps.indices(hour, global_index)
        if not self._ids:
            return hour, index
        first, moved = self._ids.find(_keys(hour, global_index))
        if bool(moved.any()):
            hour, index = hour.copy(), index.copy()
            hour[moved], index[moved] = _columns(first[moved])
        return hour, index

    def move(
        self, ids: tuple[Numbers, Numbers], before: tuple[Numbers, Numbers], now: tuple[Numbers, Numbers]
    ) -> None:
        """Note that messages, each once, have moved from one place to another."""
        first, left, place = (_keys(*columns) for columns in (ids, before, now))
        own = _keys(before[0], self._gaps.indices(*before))  # the ids that follow from these places
        again = own != first
        self._total.add(-message_sum.of_moved(first[again], left[again]))
        self._ids.remove(left[again])
        self._ids.put(place, first)
        nobody = np.full(np.count_nonzero(again), _NOBODY)
        self._places.put(np.concatenate((first, own[again])), np.concatenate((place, nobody)))
        self._total.add(message_sum.of_moved(first, place))
        self.sweep(1)

    def drop(self, hour: int) -> None:
        """Forget what rests in an hour that has been dropped."""
        for gone in self._ids.cut(hour << 32, (hour + 1) << 32):
            self._total.add(-message_sum.of_moved(gone.value, gone.key))

    def sweep(self, blocks: int = SWEPT_BLOCKS) -> None:
        """Forget pairs both of whose hours are dropped, in a few of the blocks; that changes no answer."""
        for _ in range(min(blocks, len(self._places.blocks))):
            there = self._places.blocks
            if not there:
                return
            self._swept = (self._swept + 1) % len(there)
            pairs = there[self._swept]
            kept = ~self._dropped((pairs.key >> _HALF).astype(np.uint32))
            kept |= (pairs.value != _NOBODY) & ~self._dropped((pairs.value >> _HALF).astype(np.uint32))
            if not bool(kept.all()):
                self._places.keep(self._swept, kept)

    def capture(self) -> MovedState:
        """Return the pairs for a checkpoint, without copying them."""
        return tuple(
            (block.key.view("u1").data, block.value.view("u1").data) for block in self._places.blocks
        )


def _keys(hour: Numbers, global_index: Numbers) -> Keys:
    return hour.astype(np.uint64) << _HALF | global_index.astype(np.uint64)


def _columns(keys: Keys) -> tuple[Numbers, Numbers]:
    return (keys >> _HALF).astype(np.uint32), keys.astype(np.uint32)


def _all(parts: Sequence[Pairs]) -> Pairs:
    if not parts:
        return NO_PAIRS
    return Pairs(np.concatenate([one.key for one in parts]), np.concatenate([one.value for one in parts]))
