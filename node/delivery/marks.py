"""Marks of what is being cancelled: no feed hands it over, from before it is proposed to its outcome.

The leader's alone: a cancel that was proposed and never committed has done nothing.
"""

from __future__ import annotations

import asyncio
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

_NONE: Final = BitMap64()


class Marks:
    """Marked offsets by queue, of all requests that are under way."""

    __slots__ = ("_lifted", "_sets")

    def __init__(self) -> None:
        self._sets: dict[int, BitMap64] = {}
        self._lifted = asyncio.Event()

    def of(self, queue: int) -> BitMap64:
        """Return a queue's, which is not to be changed."""
        return self._sets.get(queue, _NONE)

    async def add(self, queue: int, offsets: NDArray[np.uint64]) -> None:
        """Mark offsets, once no other request has marked any of them."""
        chosen = BitMap64(offsets.tolist())
        while self.of(queue).intersect(chosen):
            self._lifted.clear()
            await self._lifted.wait()
        self._sets[queue] = self.of(queue) | chosen

    def lift(self, queue: int, offsets: NDArray[np.uint64]) -> None:
        """Lift the marks of offsets."""
        left = self.of(queue) - BitMap64(offsets.tolist())
        if left:
            self._sets[queue] = left
        else:
            self._sets.pop(queue, None)
        self._lifted.set()
