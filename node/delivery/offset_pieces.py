"""Work on many offsets is done in pieces, a turn of the event loop's worth in each, whoever asked for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from tarry.node.edge.intake_turns import IntakeTurns
from tarry.replication.state_machine.queue_checksums import block_starts
from tarry.wheel.bitmaps import members

R = TypeVar("R")

PIECE_OFFSETS: Final = 2_048
"""Of one turn: some 3 ms to settle, 5 ms to resume."""

PIECE_BLOCKS: Final = 256
"""Blocks of the queue that they are in, at most: who settles or resumes reads each whole, in some 0.02 ms."""


class Pieces:
    """Shared by all that work in pieces, so that one turn has one whole, or several that are smaller."""

    def __init__(self) -> None:
        self._turns = IntakeTurns()

    async def each(self, offsets: Sequence[int], work: Callable[[NDArray[np.uint64]], R]) -> list[R]:
        """Return what the work returns for each piece of the offsets, sorted and each once; at least one.

        Work on no more than one piece is done at once.
        """
        pieces = _cut(offsets)
        first, second = next(pieces, column(())), next(pieces, None)
        if second is None:
            return [work(first)]
        return [await self.alone(partial(work, piece)) for piece in chain((first, second), pieces)]

    async def alone(self, work: Callable[[], R]) -> R:
        """Return what the work returns, done in a turn that has no other such work."""
        return await self.part(1.0, work)

    async def part(self, part: float, work: Callable[[], R]) -> R:
        """Return what the work returns, done in a turn of which so much is left for it."""
        await self._turns.enter(min(part, 1.0))
        return work()


def part_of(offsets: int, blocks_max: int = PIECE_BLOCKS) -> float:
    """Return the part of a turn that so many offsets take to read, each in a block of its own at worst."""
    return min(1.0, offsets / blocks_max)


def column(offsets: Sequence[int]) -> NDArray[np.uint64]:
    """Return the offsets sorted, each once."""
    return np.unique(np.array(offsets, dtype=np.uint64))


def cut(
    offsets: NDArray[np.uint64], most: int, blocks_max: int = PIECE_BLOCKS
) -> Iterator[NDArray[np.uint64]]:
    """Yield the offsets, ascending, in parts of so many, and of so many blocks of the queue, at most."""
    for start in range(0, len(offsets), most):
        part = offsets[start : start + most]
        yield from np.split(part, block_starts(part)[blocks_max::blocks_max])


def first_piece(found: BitMap64, most: int, start: int = 0) -> NDArray[np.uint64]:
    """Return the first of a set from an offset on, so many at most, and in PIECE_BLOCKS blocks at most."""
    first = found.rank(start) - (start in found)
    offsets = members(found[first : first + most])
    blocks = block_starts(offsets)
    return offsets if len(blocks) <= PIECE_BLOCKS else offsets[: blocks[PIECE_BLOCKS]]


def share_of(piece: NDArray[np.uint64], most: int, *, keyed: bool) -> float:
    """Return the share of a turn that a piece of at most so many takes, by its messages or blocks.

    Without keys it is half as much.
    """
    share = max(len(piece) / most, len(block_starts(piece)) / PIECE_BLOCKS)
    return share if keyed else share / 2


def _cut(offsets: Sequence[int]) -> Iterator[NDArray[np.uint64]]:
    for start in range(0, len(offsets), PIECE_OFFSETS):
        yield from cut(column(offsets[start : start + PIECE_OFFSETS]), PIECE_OFFSETS)
