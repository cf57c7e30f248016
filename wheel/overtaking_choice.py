"""The messages of other topics that are to be released ahead of a backlog.

Found by passes over the indices of the backlog's hours, in steps; a pass then goes on with what is appended,
and serves until the next has seen all. What has been seen rests on when this was asked, so the choice is the
leader's, and part of its command; that the chosen are released is then the same on every replica.

The topic with most of the front needs no help. The others share what may overtake by max-min fairness
(Bertsekas and Gallager, Data Networks, 6.5.2): none gets less so that another gets more than it. Of each
topic the first ones go, so that its own order stays. What is held of them is shared in the same way, so a
topic with another million crowds nobody out; when half of what is held of it is gone, a new pass begins.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import numpy as np

from tarry.wheel.columns import groups, starts_of
from tarry.wheel.delay_log import BLOCK_UNITS
from tarry.wheel.hour_partition import HourPartition
from tarry.wheel.hour_wheel import HourWheel
from tarry.wheel.near_queue import ENTRY
from tarry.wheel.state import HOUR_MS, MARK, Cut, Numbers, Rows

_STEP_UNITS: Final = 1 << 20  # looked at in one call: some 20 ms
_STEP_HOURS: Final = 8  # opened in one call, and chosen from in one: of each it may be the first use
_AHEAD_MS: Final = 10_000  # how much later than asked for is looked for as well
_FOUND_MAX: Final = 131_072  # held by a pass, 24 bytes each; found in one call, but for the rest of a block


class OvertakingChoice:
    """Picks due messages of other topics than the one in front, each message once."""

    __slots__ = ("_hours", "_next", "_pass")

    def __init__(self, hours: HourWheel) -> None:
        self._hours = hours
        self._pass: _Pass | None = None
        self._next: _Pass | None = None

    def choose(self, front: Numbers, cut: Cut, until_ms: int, quota: int) -> tuple[Numbers, Numbers]:
        """Return hours and global indices, by due time; none before a pass has seen all, a step a call.

        Args:
            front: topics of what is released next, shape (n,).
        """
        served = self._pass is not None and self._pass.serves(front, until_ms)
        if self._next is None and len(front) and not served:
            self._next = _Pass(self._hours, int(np.bincount(front).argmax()), cut, until_ms)
        if self._next is not None and self._next.look():
            self._pass, self._next = self._next, None
            self._pass.forget_gone()  # it may have seen them before they were chosen
        if self._pass is None:
            return np.empty(0, np.uint32), np.empty(0, np.uint32)
        self._pass.look()
        return self._pass.choose(cut, until_ms, quota)


class _Pass:
    """One scan for messages of other topics than one, due from the cut to some time."""

    __slots__ = ("_end_ms", "_ends_ms", "_found", "_hours", "_level", "_seen", "_start_ms", "_topic")

    def __init__(self, hours: HourWheel, topic: int, cut: Cut, until_ms: int) -> None:
        self._topic = topic
        self._hours = hours
        self._start_ms = cut.due_ms
        self._end_ms = until_ms + _AHEAD_MS
        self._ends_ms = np.array([self._end_ms + 1])  # by topic, exclusive; the last one: of all others
        self._level = 0  # how much is held at most of a topic that more has been found of
        self._seen: dict[int, int] = {}
        self._found: Rows = np.empty(0, ENTRY)

    def serves(self, front: Numbers, until_ms: int) -> bool:
        """Return whether the pass covers the topic in front and the due time, and no other runs short."""
        if until_ms > self._end_ms or (len(front) and not bool((front == self._topic).any())):
            return False
        left = np.bincount(self._found["topic"] & ~MARK, minlength=len(self._ends_ms))[: len(self._ends_ms)]
        left[front[front < len(left)]] = self._level  # they go without help
        return not bool(((self._ends_ms <= until_ms) & (2 * left < self._level)).any())

    def choose(self, cut: Cut, until_ms: int, quota: int) -> tuple[Numbers, Numbers]:
        """Choose as `OvertakingChoice.choose` does."""
        self._found = self._found[~cut.has_passed(self._found["due_ms"], self._found["global_index"])]
        due = self._found[: bisect_right(self._found["due_ms"].data, until_ms)]
        starts = starts_of(due["due_ms"] // HOUR_MS)
        if len(starts) > _STEP_HOURS:
            due = due[: starts[_STEP_HOURS]]
        positions = shares(due["topic"] & ~MARK, quota)
        chosen = due.take(positions)
        self._found = np.delete(self._found, positions)
        return (chosen["due_ms"] // HOUR_MS).astype(np.uint32), np.ascontiguousarray(chosen["global_index"])

    def look(self) -> bool:
        """Make a step; return whether everything has been seen."""
        left, room, hours, found = _STEP_UNITS, _FOUND_MAX, _STEP_HOURS, []
        whole = True
        for hour in self._hours.counts.from_hour(self._start_ms // HOUR_MS):
            if hour > self._end_ms // HOUR_MS:
                break
            units, seen = self._hours.units(hour), self._seen.get(hour, 0)
            hours -= seen < units
            while seen < units and left > 0 and room > 0 and hours >= 0:
                until = min(units, seen + min(left, BLOCK_UNITS))
                found.append(self._of_others(self._hours.must(hour), seen, until))
                left -= until - seen
                room -= len(found[-1])
                self._seen[hour] = seen = until
            whole &= seen == units
        self._add(found)
        return whole

    def _of_others(self, partition: HourPartition, start: int, end: int) -> Rows:
        block = partition.log.block(start, end)
        topic = block["topic"] & ~MARK
        due_ms = block["due_in_hour_ms"] + np.int64(partition.hour * HOUR_MS)
        ends_ms = self._ends_ms.take(topic, mode="clip")
        chosen = np.flatnonzero((topic != self._topic) & (due_ms >= self._start_ms) & (due_ms < ends_ms))
        entries = partition.entries(block.take(chosen), (chosen + start).astype(np.uint32))
        return entries[~partition.is_gone(entries["global_index"])] if partition.gone else entries

    def _add(self, found: list[Rows]) -> None:
        if not any(map(len, found)):
            return
        entries = np.concatenate((self._found, *found))
        entries = entries.take(np.argsort(entries["due_ms"], kind="stable"))
        if len(entries) > _FOUND_MAX:  # the latest of each topic are left to another pass
            topic = entries["topic"] & ~MARK
            kept = shares(topic, _FOUND_MAX)
            self._end(np.delete(topic, kept), np.delete(entries["due_ms"], kept))
            self._level = int(np.bincount(topic[kept]).max())
            entries = entries.take(kept)
        self._found = entries

    def _end(self, topic: Numbers, due_ms: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        """Look for topics, shape (n,), up to these times only, ascending: the first of each holds."""
        more = int(topic.max()) + 2 - len(self._ends_ms)
        self._ends_ms = np.append(self._ends_ms, np.full(max(0, more), self._end_ms + 1))
        self._ends_ms[topic[::-1]] = due_ms[::-1]

    def forget_gone(self) -> None:
        """Forget what has been released or cancelled since it was found."""
        keep = np.ones(len(self._found), np.bool_)
        for hour, rows in groups(self._found["due_ms"] // HOUR_MS):
            partition = self._hours.partition(hour)  # what is gone of it is known without its files
            if partition is not None and partition.gone:
                keep[rows] = ~partition.is_gone(self._found["global_index"][rows])
        self._found = self._found[keep]


def shares(topic: Numbers, quota: int) -> Numbers:
    """Choose messages by fair shares of their topics: positions, ascending, at most `quota`.

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
    """Return the most that each topic gets, so that all together get no more than the quota."""
    ascending = np.sort(counts)
    before = np.cumsum(ascending) - ascending
    level = (quota - before) // np.arange(len(counts), 0, -1)
    return int(level[(ascending > level).argmax()])
