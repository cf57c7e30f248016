"""Collecting seconds from the disk: along their chains, or by one pass over the hour's index.

A chain visits its units wherever they lie; a pass reads the index from end to end, at a three-hundredth of
the cost per unit, and can be made in steps, so that nobody waits for the whole of it.

    index    │▒░▒▒░▒░░▒▒░░▒▒░▒│▒░░▒ …       ▒ due in the window
             └── seen so far ─┘position
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tarry.wheel.delay_log import BLOCK_UNITS
from tarry.wheel.hour_partition import HourPartition
from tarry.wheel.near_queue import ENTRY
from tarry.wheel.state import HOUR_SECONDS, SECOND_MS, Numbers, Rows, WheelDamaged

CHAIN_STEP_UNITS: Final = 256  # a step of a scattered chain costs as much as a pass over so many units
CHAIN_START_UNITS: Final = 8_192  # and to begin one, as much as over so many
LOAD_UNITS: Final = 16  # to load a message, as much as over so many
_SAMPLE_UNITS: Final = 256
_DENSE_UNITS: Final = 16  # a chain whose units lie this close is walked from page to page


@dataclass(frozen=True, slots=True)
class Plan:
    """A window of an hour's seconds and how best to collect it."""

    first: int
    """Second since the epoch, as is `end`."""
    end: int
    messages: int
    in_one_pass: bool


def plan(
    partition: HourPartition, first: int, until_end: int, wanted: int, room: int, begun: Harvest | None
) -> Plan:
    """How to get the next `wanted` messages due before `until_end`, from second `first` on, which has some.

    One second by its chain, or a window by a pass, where that costs less. The window then reaches further,
    up to `room` messages, as far as to load them costs about what the pass did.
    """
    begin = first - partition.hour * HOUR_SECONDS
    live = partition.seconds.live()[begin:]
    total = np.cumsum(live, dtype=np.int64)
    needed = min(wanted, int(total[min(until_end - first, len(live)) - 1]))
    chains = int(np.count_nonzero(live[: 1 + int(np.searchsorted(total, needed))]))
    if (begun.left if begun else partition.units) >= needed * CHAIN_STEP_UNITS + chains * CHAIN_START_UNITS:
        return Plan(first, first + 1, int(live[0]), in_one_pass=False)
    worth = min(room, max(needed, partition.units // LOAD_UNITS))
    length = max(1, int(np.searchsorted(total, worth, side="right")))
    return Plan(first, first + length, int(total[length - 1]), in_one_pass=True)


class Harvest:
    """A pass under way. Units appended meanwhile are seen too: they come behind the position.

    What it finds is put where it stays, counted and looked at in the step that finds it: with a million
    messages of one second, any of that done at the end would hold everything else up.
    """

    __slots__ = (
        "_counts",
        "_found",
        "_in_order",
        "_last_ms",
        "_partition",
        "_position",
        "_size",
        "end",
        "first",
    )

    def __init__(self, partition: HourPartition, window: Plan) -> None:
        self.first = window.first
        self.end = window.end
        self._partition = partition
        self._position = 0
        self._counts = np.zeros(self.end - self.first, np.int64)
        self._found: Rows = np.empty(int(self._expected().sum()), ENTRY)
        self._size = 0
        self._in_order = True  # by due time, as found
        self._last_ms = 0

    def _expected(self) -> Numbers:
        begin = self.first % HOUR_SECONDS
        return self._partition.seconds.counts()[begin : begin + self.end - self.first]

    @property
    def left(self) -> int:
        """Units that are still to be looked at."""
        return self._partition.units - self._position

    def holds(self, second: int) -> bool:
        """Whether a second lies in the window."""
        return self.first <= second < self.end

    def step(self, units_max: int) -> bool:
        """Look at up to `units_max` more units, roughly; whether all there are have been seen."""
        log = self._partition.log
        until = min(log.units, self._position + units_max)
        low = np.uint32((self.first % HOUR_SECONDS) * SECOND_MS)
        width = np.uint32((self.end - self.first) * SECOND_MS)
        while self._position < until:
            block = log.block(self._position, min(until, self._position + BLOCK_UNITS))
            due_ms = np.ascontiguousarray(block["due_in_hour_ms"]) - low
            chosen = np.flatnonzero(due_ms < width)
            if len(chosen):
                found = block.take(chosen)
                self._put(found, (chosen + self._position).astype(np.uint32), due_ms[chosen])
            self._position += len(block)
        return self._position == log.units

    def _put(self, units: Rows, global_index: Numbers, due_ms: Numbers) -> None:
        size = self._size + len(units)
        if size > len(self._found):  # some have come since the beginning
            grown = np.empty(max(size, int(self._expected().sum())), ENTRY)
            grown[: self._size] = self._found[: self._size]
            self._found = grown
        self._found[self._size : size] = self._partition.entries(units, global_index)
        self._size = size
        self._counts += np.bincount(due_ms // np.uint32(SECOND_MS), minlength=len(self._counts))
        self._in_order &= int(due_ms[0]) >= self._last_ms and bool((due_ms[1:] >= due_ms[:-1]).all())
        self._last_ms = int(due_ms[-1])

    def entries(self, first: int) -> tuple[Rows, bool]:
        """What was found from second `first` on, cancelled or not, by (second, global index), at the end.

        And whether that is by due time, too. Raises WheelDamaged where it is not what the slots count.
        """
        if bool((self._counts != self._expected()).any()):
            raise WheelDamaged(self._partition.log.index_path, "units are not of the seconds their slots say")
        found, skipped = self._found[: self._size], int(self._counts[: first - self.first].sum())
        if self._in_order or len(self._counts) == 1:
            return found[skipped:], self._in_order
        second = (found["due_ms"] // SECOND_MS - self.first).astype(np.uint16)  # 16 bits: a radix sort
        return found.take(np.argsort(second, kind="stable")[skipped:]), False


def collect(partition: HourPartition, second: int) -> Rows:
    """One second of an hour (0 to 3,599), cancelled or not: near queue entries by global index.

    Walks the second's chain, or makes a pass where the chain is long and scattered. Raises WheelDamaged where
    the index does not hold what the slot says.
    """
    log = partition.log
    last, count = partition.seconds.chain(second)
    if count > _SAMPLE_UNITS and log.units < count * CHAIN_STEP_UNITS:
        span = last - int(log.chain(last, _SAMPLE_UNITS)[0])
        if span > _SAMPLE_UNITS * _DENSE_UNITS:
            first = partition.hour * HOUR_SECONDS + second
            harvest = Harvest(partition, Plan(first, first + 1, count, in_one_pass=True))
            harvest.step(log.units)
            return harvest.entries(first)[0]
    global_index = partition.chain(second)
    units = log.units_at(global_index)
    if bool((units["due_in_hour_ms"] // SECOND_MS != second).any()) or bool(
        (units["local_index"] != np.arange(count)).any()
    ):
        raise WheelDamaged(log.index_path, f"second {second} is not the {count} units its slot says")
    return partition.entries(units, global_index)
