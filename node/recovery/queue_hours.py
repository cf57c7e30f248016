"""Hours that the units of ready queues point into, each unit read once."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from tarry.node.repair.record_reads import RecordReads
from tarry.replication.state_machine.ready_queue import ReadyQueue

BLOCK_UNITS: Final = 65_536  # some 0.3 ms


class _Block(NamedTuple):
    """Offsets from ``first`` to ``end`` of a queue have been read: so many point into each hour."""

    first: int
    end: int
    hours: Counter[int]


class QueueHours:
    """Hours by queue. Units never change: a block is read again only where the cut has come to lie in it."""

    def __init__(self, reads: RecordReads) -> None:
        self._reads = reads
        self._blocks: dict[int, dict[int, _Block]] = {}  # by queue and offset // BLOCK_UNITS

    async def read(self, queue: ReadyQueue, cut: int) -> AsyncIterator[None]:
        """Read what is not known yet of the offsets from the cut on, a block a step. Raises UnitsDamaged."""
        blocks = self._blocks.setdefault(queue.queue, {})
        first = cut // BLOCK_UNITS
        for passed in [number for number in blocks if number < first]:
            del blocks[passed]
        for number in range(first, -(-queue.units // BLOCK_UNITS)):
            if queue.deleted:
                return  # between two steps
            begin, end = max(cut, number * BLOCK_UNITS), min(queue.units, (number + 1) * BLOCK_UNITS)
            known = blocks.get(number)
            if known is None or known.first != begin:
                known = blocks[number] = _Block(begin, begin, Counter())
            if known.end < end:
                units = await self._reads.read_ahead_for(partial(queue.read_kept, known.end, end))
                hours, counts = np.unique(units["hour"], return_counts=True)
                fresh = Counter(dict(zip(hours.tolist(), counts.tolist(), strict=True)))
                blocks[number] = _Block(begin, end, known.hours + fresh)
                yield

    def of(self, queue: int) -> Counter[int]:
        """Return how many units of a queue point into each hour, as far as they have been read."""
        total: Counter[int] = Counter()
        for block in self._blocks.get(queue, {}).values():
            total.update(block.hours)
        return total

    def pointing(self, queue: int, hours: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Yield the offsets, from and to, of each block that points into any of the hours."""
        wanted = set(hours)
        for block in list(self._blocks.get(queue, {}).values()):
            if not wanted.isdisjoint(block.hours):
                yield block.first, block.end

    def forget(self, there: set[int]) -> None:
        """Forget all queues but these."""
        for deleted in self._blocks.keys() - there:
            del self._blocks[deleted]
