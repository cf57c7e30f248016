"""Collection of seconds from the disk: along their chains, or by one pass over the hour's index.

A chain visits its units wherever they lie; a pass reads the index from end to end, at a three-hundredth of
the cost per unit. Both can be made in steps, so that nobody waits for the whole of a crowded second.

    index    │▒░▒▒░▒░░▒▒░░▒▒░▒│▒░░▒ …       ▒ due in the window
             └── seen so far ─┘position
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from tarry.wheel.delay_log import BLOCK_UNITS, walk_ahead
from tarry.wheel.hour_partition import HourPartition
from tarry.wheel.near_queue import by_due
from tarry.wheel.state import HOUR_SECONDS, SECOND_MS, Numbers, Rows, WheelDamaged

CHAIN_STEP_UNITS: Final = 256  # a step of a scattered chain costs as much as a pass over so many units
CHAIN_START_UNITS: Final = 8_192  # and to begin one, as much as over so many
LOAD_UNITS: Final = 16  # to load a message, as much as over so many
_WALK_UNITS: Final = 64  # a step of a chain that does not wait for the disk, and to load its unit
_RUN_MESSAGES: Final = 32_768  # of a single second: so many are sorted together, in some 0.5 ms
_SAMPLE_UNITS: Final = 256
_DENSE_UNITS: Final = 16  # a chain whose units lie this close is walked from page to page


@dataclass(frozen=True, slots=True)
class Plan:
    """A window of an hour's seconds and how best to collect it."""

    first: int
    """Second since the epoch, as is `end`."""
    end: int
    in_one_pass: bool


def plan(
    partition: HourPartition, first: int, until_end: int, wanted: int, room: int, begun: Pass | Walk | None
) -> Plan:
    """Plan the loading of the next `wanted` messages due before `until_end`, from second `first` on.

    One second by its chain, or a window by a pass, where that costs less. The window then reaches further,
    up to `room` messages, as far as to load them costs about what the pass did.
    """
    begin = first - partition.hour * HOUR_SECONDS
    live, units = partition.seconds.live()[begin:], partition.seconds.counts()[begin:]
    total = np.cumsum(live, dtype=np.int64)
    needed = min(wanted, int(total[min(until_end - first, len(live)) - 1]))
    seconds = 1 + int(np.searchsorted(total, needed))
    chained, chains = int(units[:seconds].sum()), int(np.count_nonzero(live[:seconds]))
    if (begun.left if begun else partition.units) >= chained * CHAIN_STEP_UNITS + chains * CHAIN_START_UNITS:
        return Plan(first, first + 1, in_one_pass=False)
    worth = min(room, max(needed, partition.units // LOAD_UNITS))
    length = max(1, int(np.searchsorted(total, worth, side="right")))
    return Plan(first, first + length, in_one_pass=True)


class Pass:
    """A pass under way. Units appended meanwhile are seen too: they come behind the position.

    What it finds is counted, chosen from and, if it is of one second, sorted in the step that finds it: with
    a million messages of one second, any of that done at the end would hold everything else up.
    """

    __slots__ = ("_counts", "_fresh", "_partition", "_pending_of", "_position", "_runs", "end", "first")

    def __init__(self, partition: HourPartition, window: Plan, pending_of: Callable[[Rows], Rows]) -> None:
        """Take `pending_of`, which chooses the entries that are wanted of those found."""
        self.first = window.first
        self.end = window.end
        self._partition = partition
        self._pending_of = pending_of
        self._position = 0
        self._counts = np.zeros(self.end - self.first, np.int64)
        self._runs: list[Rows] = []  # by global index; each by due time, where they are of one second
        self._fresh: list[Rows] = []  # behind those

    def _expected(self) -> Numbers:
        begin = self.first % HOUR_SECONDS
        return self._partition.seconds.counts()[begin : begin + self.end - self.first]

    @property
    def left(self) -> int:
        """Units that are still to be looked at."""
        return self._partition.units - self._position

    @property
    def cost_left(self) -> int:
        """The cost of the rest, as `step` counts it."""
        return self.left + LOAD_UNITS * max(0, int(self._expected().sum()) - int(self._counts.sum()))

    def holds(self, second: int) -> bool:
        """Return whether a second lies in the window."""
        return self.first <= second < self.end

    def step(self, cost_max: int | None = None) -> bool:
        """Do so much more, and less than a block beyond, or all; whether all units there are have been seen.

        A unit looked at costs 1, one that is in the window LOAD_UNITS more.
        """
        log, cost = self._partition.log, 0
        low = np.uint32((self.first % HOUR_SECONDS) * SECOND_MS)
        width = np.uint32((self.end - self.first) * SECOND_MS)
        while self._position < log.units and (cost_max is None or cost < cost_max):
            block = log.block(self._position, min(log.units, self._position + BLOCK_UNITS))
            due_ms = np.ascontiguousarray(block["due_in_hour_ms"]) - low
            chosen = np.flatnonzero(due_ms < width)
            if len(chosen):
                found = block.take(chosen)
                self._put(found, (chosen + self._position).astype(np.uint32), due_ms[chosen])
            self._position += len(block)
            cost += len(block) + LOAD_UNITS * len(chosen)
        return self._position == log.units

    def _put(self, units: Rows, global_index: Numbers, due_ms: Numbers) -> None:
        self._fresh.append(self._pending_of(self._partition.entries(units, global_index)))
        self._counts += np.bincount(due_ms // np.uint32(SECOND_MS), minlength=len(self._counts))
        if sum(map(len, self._fresh)) >= _RUN_MESSAGES:
            self._close_run()

    def _close_run(self) -> None:
        if any(map(len, self._fresh)):
            run = np.concatenate(self._fresh)
            self._runs.append(by_due(run) if len(self._counts) == 1 else run)
        self._fresh = []

    def runs(self, first: int) -> list[Rows]:
        """Return the entries from second `first` on, at the end. Of one second: runs, each by due time, of
        ascending global indices; of several: one run at most, by (second, global index).

        Raises WheelDamaged where it is not what the slots count.
        """
        if bool((self._counts != self._expected()).any()):
            raise WheelDamaged(self._partition.log.index_path, "units are not of the seconds their slots say")
        self._close_run()
        if len(self._counts) == 1 or not self._runs:
            return self._runs
        found = np.concatenate(self._runs)
        second = (found["due_ms"] // SECOND_MS - self.first).astype(np.uint16)  # 16 bits: a radix sort
        order = np.argsort(second, kind="stable")
        return [found.take(order[np.count_nonzero(second < first - self.first) :])]


class Walk:
    """A walk along a second's chain, from its newest unit to its first, then along what has come."""

    __slots__ = (
        "_base",
        "_fresh",
        "_next",
        "_partition",
        "_pending_of",
        "_runs",
        "_seen",
        "_to_walk",
        "_walked_before",
        "end",
        "first",
    )

    def __init__(self, partition: HourPartition, window: Plan, pending_of: Callable[[Rows], Rows]) -> None:
        """Take the same as `Pass`; the window is of one second."""
        self.first = window.first
        self.end = window.end
        self._partition = partition
        self._pending_of = pending_of
        self._next = -1
        self._to_walk = 0
        self._walked_before = self._seen = 0  # units of the second before this walk's, and with them
        self._runs: list[Rows] = []
        self._base = 0  # how many of the runs are of walks before
        self._fresh: list[Rows] = []  # of this walk, the last first; before its runs

    @property
    def left(self) -> int:
        """Units that are still to be looked at."""
        return self._to_walk + self._partition.seconds.chain(self.first % HOUR_SECONDS)[1] - self._seen

    @property
    def cost_left(self) -> int:
        """The cost of the rest, as `step` counts it."""
        return self.left * _WALK_UNITS

    def holds(self, second: int) -> bool:
        """Return whether the walk is along a second's chain."""
        return second == self.first

    def ahead(self, cost_max: int) -> Callable[[], None]:
        """Return what reads, from any thread, the units that a step of this cost walks along."""
        last, _ = self._partition.seconds.chain(self.first % HOUR_SECONDS)
        count = min(self.left, -(-cost_max // _WALK_UNITS))
        return partial(
            walk_ahead, self._partition.log.index_path, self._next if self._to_walk else last, count
        )

    def step(self, cost_max: int | None = None) -> bool:
        """Do so much more, at _WALK_UNITS a unit, or all; whether all units there are have been seen."""
        units = self.left if cost_max is None else -(-cost_max // _WALK_UNITS)
        while units > 0 and self.left:
            if self._to_walk == 0:
                self._close_run()
                last, count = self._partition.seconds.chain(self.first % HOUR_SECONDS)
                self._next, self._to_walk = last, count - self._seen
                self._walked_before, self._seen, self._base = self._seen, count, len(self._runs)
            units -= self._walk(min(units, self._to_walk, _RUN_MESSAGES))
        return self.left == 0

    def _walk(self, count: int) -> int:
        global_index = self._partition.log.chain(self._next, count)
        to_walk = self._to_walk - count
        units = _units_of(
            self._partition, self.first % HOUR_SECONDS, global_index, self._walked_before + to_walk
        )
        self._to_walk = to_walk  # only now: damage is met again, for else the walk would seem complete
        self._next = int(units["pre_global_index"][0])
        self._fresh.append(self._pending_of(self._partition.entries(units, global_index)))
        if sum(map(len, self._fresh)) >= _RUN_MESSAGES:
            self._close_run()
        return count

    def _close_run(self) -> None:
        if any(map(len, self._fresh)):
            self._runs.insert(self._base, by_due(np.concatenate(self._fresh[::-1])))
        self._fresh = []

    def runs(self, first: int) -> list[Rows]:
        """Return the entries of the second `first`, at the end, as `Pass.runs`."""
        self._close_run()
        return self._runs


def collect(partition: HourPartition, second: int) -> Rows:
    """Collect one second of an hour (0 to 3,599), cancelled or not: near queue entries in no order.

    Walks the second's chain, or makes a pass where the chain is long and scattered. Raises WheelDamaged where
    the index does not hold what the slot says.
    """
    log = partition.log
    last, count = partition.seconds.chain(second)
    if count > _SAMPLE_UNITS and log.units < count * CHAIN_STEP_UNITS:
        span = last - int(log.chain(last, _SAMPLE_UNITS)[0])
        if span > _SAMPLE_UNITS * _DENSE_UNITS:
            first = partition.hour * HOUR_SECONDS + second
            scan = Pass(partition, Plan(first, first + 1, in_one_pass=True), lambda entries: entries)
            scan.step()
            return np.concatenate(scan.runs(first))
    global_index = partition.chain(second)
    return partition.entries(_units_of(partition, second, global_index, 0), global_index)


def _units_of(partition: HourPartition, second: int, global_index: Numbers, before: int) -> Rows:
    """Return a second's units that `before` others precede. Raises WheelDamaged where they are not."""
    log = partition.log
    units = log.units_mapped(global_index)
    if bool((units["due_in_hour_ms"] // SECOND_MS != second).any()) or bool(
        (units["local_index"] != np.arange(before, before + len(units))).any()
    ):
        raise WheelDamaged(log.index_path, f"second {second} is not the units its slot says")
    return units
