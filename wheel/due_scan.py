"""A scan for what is pending of some topics, in the order of due time and global index, in bounded steps.

    seen ┐                                              end of the hour
    │▒▒▒▒│ second 8 │ second 9 │ second 10 │ …                │
         └── along chains, one by one ─────┘└─── one pass ────┘ once chains have cost as much as a pass

To leave the chains only then costs at most twice what the better of both would have: the ski rental problem.
A pass keeps the first of what it finds, and no more than there is room for: the scan goes on behind these.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tarry.wheel.cached_reads import read_ahead
from tarry.wheel.delay_log import BLOCK_UNITS
from tarry.wheel.hour_partition import HourPartition
from tarry.wheel.hour_wheel import HourWheel
from tarry.wheel.index_scan import CHAIN_START_UNITS, CHAIN_STEP_UNITS, LOAD_UNITS, Plan, Walk
from tarry.wheel.near_queue import ENTRY, NOTHING, by_due
from tarry.wheel.state import HOUR_MS, HOUR_SECONDS, NONE, SECOND_MS, Cut, Flags, Masks, Numbers, Rows

Chosen: TypeAlias = Callable[[Numbers, Masks], Flags]
"""Flags units, shape (n,), by their columns topic and tag_mask as an index has them."""

FOUND_MAX: Final = 32_768
"""Messages that a pass keeps, 24 bytes each; while it looks, twice as many."""
_STEP_COST: Final = 524_288  # of one step, in units that a pass looks at: some 2 to 5 ms
_FEW_UNITS: Final = 32_768  # an hour with fewer is looked at by a pass
_HOUR_COST: Final = 49_152  # of an hour that has to be opened first


class DueScan:
    """Pending messages behind a position, as far as it has been looked: `found` has them, in their order."""

    __slots__ = ("_chosen", "_cut", "_end", "_hour", "_hours", "_spent", "_work", "cost", "found", "seen")

    def __init__(
        self, hours: HourWheel, cut: Callable[[], Cut], chosen: Chosen, after: Cut, end_ms: int
    ) -> None:
        """Look for what is `chosen`, behind a position and due before `end_ms`; `cut` returns the wheel's."""
        self._hours, self._cut, self._chosen = hours, cut, chosen
        self._end = Cut(end_ms - 1, NONE)
        self.seen = after
        """What was pending at or before, and is to be found, has been."""
        self.found: Rows = NOTHING
        self.cost = 0
        """Of all steps, in units that a pass looks at, of some 4 ns each."""
        self._work: _Chain | _Pass | None = None
        self._hour, self._spent = -1, 0  # on chains of this hour

    @property
    def is_over(self) -> bool:
        """True if nothing more will be found."""
        return self.seen >= self._end

    @property
    def is_under_way(self) -> bool:
        """True while only further steps give what some have looked for."""
        return self._work is not None

    def forget(self, after: Cut) -> None:
        """Forget what was found at or before a position."""
        self.found = self.found[~after.has_passed(self.found["due_ms"], self.found["global_index"])]

    def ahead(self) -> Callable[[], None] | None:
        """Return what reads the part of an index that the next step looks at; None: it looks at none.

        To be called from any thread, so that the step waits for no disk.
        """
        work = self._work
        if work is None or work.partition is None or self._hours.written(work.hour) is not work.partition:
            return None
        return None if work.partition.log.is_held else work.ahead()

    def step(self) -> None:
        """Look at more, for some ms. Raises OSError and WheelDamaged."""
        work = self._work
        if work is None:
            self._begin()
            return
        partition = self._hours.written(work.hour)
        if partition is not work.partition:
            self._work = None  # made, or dropped with all of it released, meanwhile: look again
            return
        if partition is not None:
            partition.prove()
        self.cost += work.step()
        if work.is_over:
            entries, self.seen = work.result()
            self.found = np.concatenate((self.found, entries))
            self._work = None

    def _begin(self) -> None:
        """Choose what to look at next, if anything is left."""
        self.seen = max(self.seen, self._cut())
        from_ms = self.seen.due_ms + self.seen.complete
        hour = next(self._hours.counts.from_hour(from_ms // HOUR_MS), None)
        if hour is None or hour * HOUR_MS > self._end.due_ms:
            self.seen = max(self.seen, self._end)
            return
        if hour != self._hour:
            self._hour, self._spent = hour, 0
            self.cost += _HOUR_COST
        partition = self._hours.written(hour)
        if partition is None or self._hours.counts.far_of(hour) or partition.units < _FEW_UNITS:
            self._work = _Pass(self._hours, hour, partition, self._chosen, self._left)
            return
        begin = hour * HOUR_SECONDS
        second = partition.seconds.first_live(max(0, from_ms // SECOND_MS - begin))
        if second is None:
            self.seen = _end_of(hour)
            return
        self._spent += CHAIN_START_UNITS + partition.seconds.chain(second)[1] * CHAIN_STEP_UNITS
        if self._spent > partition.units:
            self._spent = 0
            self._work = _Pass(self._hours, hour, partition, self._chosen, self._left)
        else:
            self._work = _Chain(partition, begin + second, self._chosen, self._left)

    def _left(self, partition: HourPartition | None, entries: Rows) -> Rows:
        """Return the entries that are pending, behind what has been seen, and due in time."""
        due, index = entries["due_ms"], entries["global_index"]
        left = (due <= self._end.due_ms) & ~max(self.seen, self._cut()).has_passed(due, index)
        if partition is not None and partition.gone:
            left &= ~partition.is_gone(index)
        return entries.compress(left)


Left: TypeAlias = Callable[[HourPartition | None, Rows], Rows]


class _Chain:
    """A walk along one second's chain."""

    def __init__(self, partition: HourPartition, second: int, chosen: Chosen, left: Left) -> None:
        self.hour, self.partition = partition.hour, partition
        self._second = second

        def wanted(entries: Rows) -> Rows:
            return left(partition, entries.compress(chosen(entries["topic"], entries["tag_mask"])))

        self._walk = Walk(partition, Plan(second, second + 1, in_one_pass=False), wanted)
        self.is_over = False

    def ahead(self) -> Callable[[], None]:
        """Return what reads the units that the next step walks along."""
        return self._walk.ahead(_STEP_COST)

    def step(self) -> int:
        """Walk on; return the cost."""
        before = self._walk.left
        self.is_over = self._walk.step(_STEP_COST)
        return CHAIN_START_UNITS + (before - self._walk.left) * CHAIN_STEP_UNITS

    def result(self) -> tuple[Rows, Cut]:
        """Return what was found, and the position up to which that is all."""
        runs = self._walk.runs(self._second)
        return by_due(np.concatenate((NOTHING, *runs))), Cut((self._second + 1) * SECOND_MS - 1, NONE)


class _Pass:
    """A pass over all units of an hour, then what of it is in the far log: the first FOUND_MAX are kept."""

    def __init__(
        self, hours: HourWheel, hour: int, partition: HourPartition | None, chosen: Chosen, left: Left
    ) -> None:
        self.hour, self.partition = hour, partition
        self._hours, self._chosen, self._left = hours, chosen, left
        self._position = 0
        self._parts: list[Rows] = []
        self._count = 0
        self._end_in_hour_ms = HOUR_MS  # from there on nothing is kept
        self._is_full = False
        self.is_over = False

    def ahead(self) -> Callable[[], None]:
        """Return what reads the units that the next step looks at."""
        assert self.partition is not None
        end = min(self.partition.units, self._position + -(-_STEP_COST // BLOCK_UNITS) * BLOCK_UNITS)
        return partial(read_ahead, [self.partition.log.index_places(self._position, end)])

    def step(self) -> int:
        """Look at more units; return the cost."""
        cost = 0
        units = self.partition.units if self.partition is not None else 0
        while self._position < units and cost < _STEP_COST:
            cost += self._look(min(units, self._position + BLOCK_UNITS))
        if self._position < units:
            return cost
        if self._hours.counts.far_of(self.hour):
            cost += self._look_far()
        self.is_over = True
        return cost

    def _look(self, end: int) -> int:
        """Look at the units up to one that is there."""
        assert self.partition is not None
        block = self.partition.log.block(self._position, end)
        due_ms = np.ascontiguousarray(block["due_in_hour_ms"])
        rows = np.flatnonzero(due_ms < self._end_in_hour_ms)
        rows = rows[self._chosen(block["topic"][rows], block["tag_mask"][rows])]
        index = (rows + self._position).astype(np.uint32)
        self._position = end
        return len(block) + self._keep(
            self._left(self.partition, self.partition.entries(block.take(rows), index))
        )

    def _look_far(self) -> int:
        rows, units = self._hours.far.rows_of(self.hour)
        chosen = ~self._hours.far.is_gone(rows) & self._chosen(units["topic"], units["tag_mask"])
        units = units[chosen]
        entries = np.empty(len(units), ENTRY)
        for name in ("global_index", "topic", "tag_mask"):
            entries[name] = units[name]
        entries["due_ms"] = units["due_in_hour_ms"] + np.int64(self.hour * HOUR_MS)
        return LOAD_UNITS * len(rows) + self._keep(self._left(None, entries))

    def _keep(self, entries: Rows) -> int:
        """Keep entries, the first of all where they become too many; return what that costs."""
        self._parts.append(entries)
        self._count += len(entries)
        if self._count <= 2 * FOUND_MAX:
            return LOAD_UNITS * len(entries)
        kept = self._first(np.concatenate(self._parts))
        # what comes later in its last millisecond has a larger global index
        self._end_in_hour_ms = int(kept["due_ms"].max()) - self.hour * HOUR_MS
        self._parts, self._count = [kept], len(kept)
        return LOAD_UNITS * (len(entries) + FOUND_MAX)

    def _first(self, entries: Rows) -> Rows:
        """Return the first FOUND_MAX entries, in no order."""
        if len(entries) <= FOUND_MAX:
            return entries
        self._is_full = True
        return entries.take(np.argpartition(self._keys(entries), FOUND_MAX)[:FOUND_MAX])

    def _keys(self, entries: Rows) -> NDArray[np.uint64]:
        keys = (entries["due_ms"] - self.hour * HOUR_MS).astype(np.uint64) << np.uint64(32)
        keys |= entries["global_index"]
        return keys

    def result(self) -> tuple[Rows, Cut]:
        """Return what was found, and the position up to which that is all."""
        found = self._first(np.concatenate((NOTHING, *self._parts)))
        found = found.take(np.argsort(self._keys(found)))
        if self._is_full:
            return found, Cut(int(found["due_ms"][-1]), int(found["global_index"][-1]))
        return found, _end_of(self.hour)


def _end_of(hour: int) -> Cut:
    return Cut((hour + 1) * HOUR_MS - 1, NONE)
