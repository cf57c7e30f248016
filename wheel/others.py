"""Who is to overtake a backlog: what other topics have due behind its front.

Found by a pass over the indices of the backlog's hours, in steps, which then goes on with what is appended.
What has been seen rests on when this was asked, so the choice is the leader's, and part of its command; that
the chosen are released is then the same on every replica.

The topic with most of the front needs no help. The others share what may overtake by max-min fairness
(Bertsekas and Gallager, Data Networks, 6.5.2): none gets less so that another gets more than it. Of each
topic the first ones go, so that its own order stays.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import numpy as np

from tarry.wheel.delay_log import BLOCK_UNITS
from tarry.wheel.grouping import starts_of
from tarry.wheel.hour_partition import HourPartition
from tarry.wheel.hour_wheel import HourWheel
from tarry.wheel.near_queue import ENTRY
from tarry.wheel.state import HOUR_MS, MARK, Cut, Numbers, Rows

_STEP_UNITS: Final = 1 << 20  # looked at in one call: some 10 ms
_AHEAD_MS: Final = 10_000  # how much later than asked for is looked for as well; then a new pass begins
_FOUND_MAX: Final = 131_072  # held, 24 bytes each, and all of the last one's millisecond
_SHARING_MAX: Final = 32_768  # of those, looked at to share


class Others:
    """What topics but one have due after the cut, up to some time, as far as it has not been chosen."""

    __slots__ = ("_end_ms", "_found", "_hours", "_seen", "_start_ms", "_topic")

    def __init__(self, hours: HourWheel, front: Numbers, cut: Cut, until_ms: int) -> None:
        """`front`: topics of what is released next, shape (n,)."""
        self._topic = int(np.bincount(front).argmax()) if len(front) else None
        self._hours = hours
        self._start_ms = cut.due_ms
        self._end_ms = until_ms + _AHEAD_MS
        self._seen: dict[int, int] = {}
        self._found: Rows = np.empty(0, ENTRY)

    def serves(self, front: Numbers, until_ms: int) -> bool:
        """Whether this is still about the topic in front, and about all that is due by then."""
        return until_ms <= self._end_ms and bool((front == self._topic).any())

    def choose(self, cut: Cut, until_ms: int, quota: int) -> tuple[Numbers, Numbers]:
        """Hours and global indices, by due time; none before all has been seen, a step a call."""
        if self._topic is None or not self._look():
            return np.empty(0, np.uint32), np.empty(0, np.uint32)
        self._found = self._found[~cut.has_passed(self._found["due_ms"], self._found["global_index"])]
        due = self._found[: bisect_right(self._found["due_ms"].data, until_ms)][:_SHARING_MAX]
        positions = shares(due["topic"] & ~MARK, quota)
        chosen = due.take(positions)
        self._found = np.delete(self._found, positions)
        return (chosen["due_ms"] // HOUR_MS).astype(np.uint32), np.ascontiguousarray(chosen["global_index"])

    def _look(self) -> bool:
        """Go on with the pass; whether everything has been seen."""
        left, found, whole = _STEP_UNITS, [], True
        for hour in self._hours.hours():
            if not self._start_ms // HOUR_MS <= hour <= self._end_ms // HOUR_MS:
                continue
            partition, seen = self._hours.must(hour), self._seen.get(hour, 0)
            until = min(partition.units, seen + left)
            found += [
                self._of_others(partition, start, min(until, start + BLOCK_UNITS))
                for start in range(seen, until, BLOCK_UNITS)
            ]
            self._seen[hour] = until
            left -= until - seen
            whole &= until == partition.units
        self._add(found)
        return whole

    def _of_others(self, partition: HourPartition, start: int, end: int) -> Rows:
        block = partition.log.block(start, end)
        chosen = np.flatnonzero(block["topic"] & ~MARK != self._topic)
        entries = partition.entries(block.take(chosen), (chosen + start).astype(np.uint32))
        if partition.gone:
            entries = entries[~partition.is_gone(entries["global_index"])]
        return entries[(entries["due_ms"] >= self._start_ms) & (entries["due_ms"] <= self._end_ms)]

    def _add(self, found: list[Rows]) -> None:
        if not any(map(len, found)):
            return
        entries = np.concatenate((self._found, *found))
        entries = entries.take(np.argsort(entries["due_ms"], kind="stable"))
        if len(entries) > _FOUND_MAX:  # the latest are left to another pass
            self._end_ms = int(entries["due_ms"][_FOUND_MAX - 1])
            entries = entries[: bisect_right(entries["due_ms"].data, self._end_ms)]
        self._found = entries


def shares(topic: Numbers, quota: int) -> Numbers:
    """Which of messages in the order of their due times are chosen: positions, ascending, at most `quota`.

    Args:
        topic: of each message, shape (n,).
    """
    if len(topic) <= quota:
        return np.arange(len(topic), dtype=np.uint32)
    order = np.argsort(topic, kind="stable")
    starts = starts_of(topic[order])
    counts = np.diff(np.append(starts, len(topic)))
    rank = np.arange(len(topic)) - np.repeat(starts, counts)
    chosen = np.sort(order[rank < max(1, _level(counts, quota))])
    return chosen[:quota].astype(np.uint32)


def _level(counts: Numbers, quota: int) -> int:
    """The most that each topic gets, so that all together get no more than the quota."""
    ascending = np.sort(counts)
    before = np.cumsum(ascending) - ascending
    level = (quota - before) // np.arange(len(counts), 0, -1)
    return int(level[(ascending > level).argmax()])
