"""The release of due messages: the cut, and the near queue that runs ahead of it.

cut                near end
 │▒▒ ▒▒▒  ▒  ▒▒ ▒ ▒▒│   ░     ░░       ░      ░░░░░░░
 └── in the near ───┘└── on disk: only which seconds have any is known
     queue, sorted
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tarry.wheel.columns import groups
from tarry.wheel.hour_partition import HourPartition
from tarry.wheel.hour_wheel import HourWheel
from tarry.wheel.index_scan import CHAIN_STEP_UNITS, LOAD_UNITS, Pass, Plan, Walk, collect, plan
from tarry.wheel.near_queue import NOTHING, NearQueue, taken
from tarry.wheel.overtaking_choice import OvertakingChoice
from tarry.wheel.state import (
    HOUR_MS,
    HOUR_SECONDS,
    MARK,
    NONE,
    SECOND_MS,
    Cut,
    Flags,
    Numbers,
    Rows,
    Taken,
    Times,
    WheelDamaged,
    WheelSettings,
)

_SLICE: Final = 256  # entries looked at together at least, so that a run of those gone is passed quickly
# What one call does ahead, so that none pays for ten seconds: mostly nothing.
_AHEAD_MESSAGES_MAX: Final = 2_048  # loaded along chains
_AHEAD_COST: Final = 2_097_152  # of a pass, as its steps count it: some 7 ms
_TAKE_COST: Final = 131_072  # of that by a take, of which a turn has several
_AHEAD_WINDOW_MAX: Final = 32_768  # messages of a pass, loaded when it ends
_CROWD_MESSAGES: Final = 8_192  # a second with more is loaded in steps, begun before there is room for it
_AT_ONCE_COST: Final = 3_145_728  # a second that costs more to load is read before it is near
_FAR_MESSAGES_MAX: Final = 1_048_576  # of such seconds; one more is read behind so many or fewer
_OTHERS_HOURS_MAX: Final = 1_024  # of a backlog, in which others are looked for
_FRONT_SECONDS_MAX: Final = 64  # of a backlog, that what is in front is looked for in
_LOOKED_MESSAGES_MAX: Final = 65_536  # of what is due, that are looked at one by one: some 5 ms
_PEEK_MESSAGES_MAX: Final = 4_096  # a second with more gives its beginning as its first due time


class Release:
    """The cut and the messages that come next. `hours` counts the pending."""

    __slots__ = (
        "_choice",
        "_far_crowds",
        "_hours",
        "_near",
        "_next_beyond",
        "_scan",
        "_settings",
        "cut",
        "local_index",
    )

    def __init__(self, hours: HourWheel, settings: WheelSettings, cut: Cut, local_index: int) -> None:
        self._hours = hours
        self._settings = settings
        self.cut = cut
        self.local_index = local_index
        self._near = NearQueue(cut.due_ms // SECOND_MS)
        self._scan: Pass | Walk | None = None
        self._far_crowds: dict[int, Pass | Walk] = {}  # of seconds beyond the near queue
        self._choice: OvertakingChoice | None = None  # while there is a backlog, of who leads
        # A time nothing beyond the near queue is due before; None: not known, or nothing.
        self._next_beyond: int | None = None

    @property
    def near_messages(self) -> int:
        """Messages in the near queue."""
        return self._near.count

    def overdue(self, due_ms: Times) -> Flags:
        """Flag the new messages, shape (n,), that come at or behind the cut."""
        return due_ms <= self.cut.due_ms if self.cut.complete else due_ms < self.cut.due_ms

    def arrive(self, entries: Rows) -> None:
        """Take note of new pending messages, in the order they were appended."""
        if len(entries) == 0:
            return
        if self._next_beyond is not None:
            beyond = entries["due_ms"][entries["due_ms"] >= self._near.end * SECOND_MS]
            if len(beyond):
                self._next_beyond = min(self._next_beyond, int(beyond.min()))
        self._near.add(entries)
        self._near.shed(self._settings.near_messages_max)

    def take(self, until_ms: int, count: int) -> Taken:
        """Release the next messages, as `Wheel.take` says."""
        if until_ms < self.cut.due_ms or (until_ms == self.cut.due_ms and self.cut.complete):
            return taken([])
        parts: list[Rows] = []
        wanted = count
        while (found := self._next_live(until_ms, max(wanted, _SLICE))) is not None:
            if wanted == 0:
                break
            head, live = found
            if live is None:
                head = head[:wanted]
                self._near.drop(len(head))
            else:
                chosen = np.flatnonzero(live)[:wanted]
                head = head.take(chosen)
                self._near.drop(int(chosen[-1]) + 1)
            parts.append(head)
            wanted -= len(head)
        released = taken(parts)
        if found is None:
            self._move(Cut(until_ms, NONE), released)
            self._choice = None
        elif len(released):
            self._move(Cut(int(released.due_ms[-1]), int(released.global_index[-1])), released)
        self._next_beyond = None
        share = 0.0
        if found is not None and self._near.end * SECOND_MS <= until_ms:
            # In equal shares, a pass is over when all that is loaded before is taken.
            share = len(released) / (len(released) + self._near.count)
            with suppress(WheelDamaged):  # the call that needs the second meets it again
                self.read_far_crowds(until_ms, len(released))
        self._load_ahead(self.cut.due_ms, _TAKE_COST, share)
        return released

    def until_of_hours(self, until_ms: int, hours_max: int) -> int:
        """Return the bound that `Wheel.until_of_hours` describes."""
        first = self.cut.due_ms // HOUR_MS
        if until_ms // HOUR_MS - first < hours_max:
            return until_ms
        beyond = next(islice(self._hours.counts.from_hour(first), hours_max, None), None)
        return until_ms if beyond is None else min(until_ms, beyond * HOUR_MS - 1)

    def front(self, until_ms: int, count: int) -> Numbers:
        """Return the topics that `Wheel.front` describes."""
        parts = [np.empty(0, np.uint32)]
        for second, entries in islice(self._near.heads(until_ms, count), _FRONT_SECONDS_MAX):
            partition = self._hours.must(second // HOUR_SECONDS)
            parts.append(self._pending_of(partition, entries, second)["topic"])
        topics: Numbers = np.concatenate(parts) & ~MARK
        return topics

    def overtaking(self, until_ms: int, count: int, quota: int) -> tuple[Numbers, Numbers]:
        """Choose messages, as `Wheel.overtaking` says."""
        until_ms = self.until_of_hours(until_ms, _OTHERS_HOURS_MAX)
        front = self._near.head(until_ms, count)["topic"] & ~MARK
        if self._choice is None:
            self._choice = OvertakingChoice(self._hours)
        return self._choice.choose(front, self.cut, until_ms, quota)

    def _next_live(self, until_ms: int, limit: int) -> tuple[Rows, Flags | None] | None:
        """Return the next entries due by `until_ms`, and flags of the live if not all are; None: none."""
        while True:
            self._load_until(until_ms, limit)
            head = self._near.head(until_ms, limit)
            if len(head) == 0:
                return None
            partition = self._hours.must(int(head["due_ms"][0]) // HOUR_MS)
            if not partition.gone:
                return head, None
            live = ~partition.is_gone(head["global_index"])
            if bool(live.any()):
                return head, live
            self._near.drop(len(head))

    def _load_until(self, until_ms: int, wanted: int) -> None:
        """Load something due in a second that begins by `until_ms`, if the near queue is empty.

        `wanted` is how many are going to be taken, if there are as many.
        """
        until_end = until_ms // SECOND_MS + 1
        while self._near.count == 0 and self._near.end < until_end:
            second = self._hours.first_live_second(self._near.end)
            if second is None or second >= until_end:
                self._near.end = until_end
            else:
                self._near.end = second
                self._load(until_end, wanted)

    def load_ahead(self, now_ms: int) -> bool:
        """Load what is due within `near_ms` of now, while there is room, a bounded amount a call.

        Return whether it did anything.
        """
        near, scan = self._near, self._scan
        before = near.end, scan and scan.left
        self._load_ahead(now_ms, _AHEAD_COST, 0.0)
        return (near.end, self._scan and self._scan.left) != before

    def read_far_crowds(self, until_ms: int = sys.maxsize, released: int = 0) -> bool:
        """Read a step of the next crowded second beyond the near queue that is not read, whatever its time.

        The clock may jump to it. What costs little is left until it is loaded. After a release, the step is
        the share of the messages released in all that precede the second. Return whether anything was read.
        """
        scan, before = self._scan, self._near.count
        if scan is not None and scan.left:
            return False
        crowds = self._crowds_beyond()
        self._far_crowds = {
            second: self._far_crowds[second] for second in self._far_crowds if second in crowds
        }
        for second, live in crowds.items():
            if second * SECOND_MS > until_ms:
                return False
            crowd = self._far_crowds.get(second)
            if crowd is None and (scan is None or not scan.holds(second)):
                partition = self._hours.must(second // HOUR_SECONDS)
                crowd = self._scan_for(partition, plan(partition, second, second + 1, 1, 1, None), None)
                self._far_crowds[second] = crowd
            if crowd is not None and crowd.left and crowd.cost_left > _AHEAD_COST // 4:
                share = released / (released + before) if released else 0.0
                crowd.step(max(_TAKE_COST, int(share * crowd.cost_left)) if released else _AHEAD_COST)
                return True
            before += live
        return False

    def _crowds_beyond(self) -> dict[int, int]:
        """Return the messages of each crowded second to be read ahead, from the near queue's end on.

        They are of two hours at most.
        """
        end, crowds, room = self._near.end, dict[int, int](), _FAR_MESSAGES_MAX
        first = next(self._hours.counts.from_hour(end // HOUR_SECONDS), None)
        for hour in () if first is None else (first, first + 1):
            if self._hours.is_large(hour):
                partition, begin = self._hours.must(hour), max(end, hour * HOUR_SECONDS)
                live = partition.seconds.live(begin - hour * HOUR_SECONDS).astype(np.int64)
                cost = np.minimum(live * CHAIN_STEP_UNITS, partition.units) + live * LOAD_UNITS
                for at in np.flatnonzero(cost > _AT_ONCE_COST).tolist():
                    if room < 0:
                        return crowds
                    crowds[begin + at] = int(live[at])
                    room -= int(live[at])
        return crowds

    def _load_ahead(self, now_ms: int, cost_max: int, share: float) -> None:
        target = (now_ms + self._settings.near_ms) // SECOND_MS
        before, hour = self._near.count, None
        while self._near.end < target and self._near.count < before + _AHEAD_MESSAGES_MAX:
            second = self._hours.first_live_second(self._near.end)
            if second is None or second >= target:
                self._near.end = target
                return
            self._near.end = second
            if hour is not None and second // HOUR_SECONDS != hour:
                return  # to open one more, which may lie in the far log, is enough
            hour = second // HOUR_SECONDS
            if not self._load_some(cost_max, share):
                return

    def _load(self, until_end: int, wanted: int) -> None:
        """Load from the near queue's end on, whatever it takes."""
        near, begun = self._near, self._begun()
        partition = self._hours.must(near.end // HOUR_SECONDS)
        room = self._settings.near_messages_max // 2
        window = plan(partition, near.end, self._before_crowd(until_end), wanted, room, begun)
        scan = self._scan_for(partition, window, begun)
        scan.step()
        self._take_in(scan)

    def _load_some(self, cost_max: int, share: float) -> bool:
        """Load from the near queue's end on; return False where there is no room, or a step was made."""
        near, begun = self._near, self._begun()
        partition = self._hours.must(near.end // HOUR_SECONDS)
        at = near.end % HOUR_SECONDS
        units = partition.seconds.chain(at)[1]
        if int(partition.seconds.live(at, at + 1)[0]) > _FAR_MESSAGES_MAX:
            self._far_crowds.clear()  # what has been read behind it has no room
        crowded = units > _CROWD_MESSAGES
        room = min(self._settings.near_messages_max // 2 - near.count, _AHEAD_WINDOW_MAX)
        has_room = room > 0 or near.count == 0
        if not has_room and not crowded:
            return False
        until_end = self._before_crowd(near.end + HOUR_SECONDS)
        window = plan(partition, near.end, until_end, max(room, 1), max(room, 1), begun)
        scan = self._scan_for(partition, window, begun)
        if not window.in_one_pass and not crowded:
            scan.step()
            self._take_in(scan)
            return True
        self._scan = scan
        if scan.step(max(cost_max, int(share * scan.cost_left))) and has_room:
            self._take_in(scan)
        return False

    def _begun(self) -> Pass | Walk | None:
        """Return the pass or walk that covers the near queue's end; those of later seconds are kept."""
        end = self._near.end
        for second in [second for second in self._far_crowds if second < end]:
            del self._far_crowds[second]
        self._scan = self._far_crowds.get(end, self._scan)
        if self._scan is not None and self._scan.end <= end:
            self._scan = None
        return self._scan if self._scan is not None and self._scan.holds(end) else None

    def _before_crowd(self, until_end: int) -> int:
        """Return the end of what is to be loaded without a crowded second that is read already."""
        return min(
            (second for second in self._far_crowds if self._near.end < second < until_end), default=until_end
        )

    def _scan_for(self, partition: HourPartition, window: Plan, begun: Pass | Walk | None) -> Pass | Walk:
        """Return the pass or walk to go on with: the one begun, or a new one where that costs less."""
        if isinstance(begun, Walk) or (begun is not None and window.in_one_pass):
            return begun
        pending_of = partial(self._pending_of, partition, second=window.first)
        return (Pass if window.in_one_pass else Walk)(partition, window, pending_of)

    def _take_in(self, scan: Pass | Walk) -> None:
        """Load what was found, at the end."""
        near = self._near
        self._far_crowds.pop(near.end, None)
        runs = scan.runs(near.end)
        if scan.end == scan.first + 1:
            near.load_second(runs)
        else:
            near.load(scan.end, runs[0] if runs else NOTHING)
        if scan is self._scan:
            self._scan = None

    def _move(self, cut: Cut, taken: Taken) -> None:
        if len(taken):
            for hour, rows in groups(taken.hour):
                self._hours.count(hour, -len(taken.hour[rows]))
            self._hours.topics.add(taken.topic, -1)
        tick = cut.due_ms // SECOND_MS
        if tick != self.cut.due_ms // SECOND_MS:
            self.local_index = 0
        self.local_index += len(taken) - int(np.searchsorted(taken.due_ms, tick * SECOND_MS))
        self.cut = cut

    def pending_in(self, second: int) -> Rows:
        """Return everything pending of a second (since the epoch), in no order."""
        partition = self._hours.must(second // HOUR_SECONDS)
        if second < self._near.end:
            return self._pending_of(partition, self._near.of_second(second), second)
        return self._pending_of(partition, collect(partition, second % HOUR_SECONDS), second)

    def _pending_of(self, partition: HourPartition, entries: Rows, second: int) -> Rows:
        """Return the pending ones of an hour's entries, due from a second on, in their order."""
        index, due = entries["global_index"], entries["due_ms"]
        if partition.gone:
            entries = entries[~partition.is_gone(index)]
            index, due = entries["global_index"], entries["due_ms"]
        if second * SECOND_MS > self.cut.due_ms:
            return entries
        ahead = ~self.cut.has_passed(due, index)
        return entries if bool(ahead.all()) else entries[ahead]

    def next_due_ms(self) -> int | None:
        """Return the time that `Wheel.next_due_ms` describes."""
        if self._hours.counts.total == 0:
            return None
        near = self._near.first_due_ms()
        if near is not None:
            return near
        if self._next_beyond is None:
            self._next_beyond = self._peek()
        return self._next_beyond

    def pending_before(self, due_ms: int) -> int:
        """Return the number that `Wheel.pending_before` describes."""
        if due_ms <= self.cut.due_ms:
            return 0
        counts, hour, second = self._hours.counts, due_ms // HOUR_MS, due_ms // SECOND_MS
        earlier, partition = counts.between(self.cut.due_ms // HOUR_MS, hour), self._hours.partition(hour)
        if partition is None or (seconds := partition.open_seconds) is None:
            return earlier
        if second > self.cut.due_ms // SECOND_MS:  # of the cut's, slots count what is released as well
            begun = counts.of(hour) - counts.far_pending_of(hour)
            earlier += begun - int(seconds.live(second % HOUR_SECONDS).sum(dtype=np.int64))
        if second < self._near.end:
            for part in self._near.before_in_second(due_ms):
                index = part["global_index"]
                written = len(part) if counts.far_of(hour) == 0 else int((index < partition.units).sum())
                # else the set need not be asked, or asking it for so many would take too long
                lost = seconds.has_gone(second % HOUR_SECONDS) and len(part) <= _LOOKED_MESSAGES_MAX
                earlier += written - (int(partition.is_gone(index).sum()) if lost else 0)
        return earlier

    def pending_seconds(self, second: int, seconds: int) -> Numbers | None:
        """Return the counts that `Wheel.pending_seconds` describes."""
        pending, counts = np.zeros(seconds, np.uint32), self._hours.counts
        for hour, begin, end in self._hours.pending_parts(second, seconds):
            partition = self._hours.partition(hour)
            if counts.far_of(hour) or partition is None or (slots := partition.open_seconds) is None:
                return None
            within = slots.live(begin % HOUR_SECONDS, end - hour * HOUR_SECONDS)
            pending[begin - second : end - second] = within
        present = max(second, self.cut.due_ms // SECOND_MS)
        pending[: present - second] = 0  # released
        if present < second + seconds:  # in part, perhaps: slots count that, too
            before = self.pending_before(present * SECOND_MS)
            pending[present - second] = self.pending_before((present + 1) * SECOND_MS) - before
        return pending

    def first_due_ms(self) -> int | None:
        """Return the time that `Wheel.first_due_ms` describes."""
        if not self._hours.counts.total:
            return None  # of the far log's, the near queue may have cancelled ones
        for second, entries in islice(self._near.heads(sys.maxsize, _SLICE), _FRONT_SECONDS_MAX):
            live = self._not_gone(second, entries)
            if len(live):
                return int(live["due_ms"][0])
        first = next(self._hours.counts.from_hour(self.cut.due_ms // HOUR_MS), None)
        return None if first is None else max(first * HOUR_MS, self.cut.due_ms)

    def due_topics(self, until_ms: int) -> tuple[Numbers, NDArray[np.int64], Times]:
        """Return the columns that `Wheel.due_topics` describes."""
        topics, dues, room = [np.empty(0, np.uint32)], [np.empty(0, np.int64)], _LOOKED_MESSAGES_MAX
        for second, part in self._near.due_by(until_ms):
            if room <= 0:
                break
            entries = self._not_gone(second, part[:room])
            topics.append(entries["topic"] & ~MARK)
            dues.append(entries["due_ms"])
            room -= len(part)
        topic = np.concatenate(topics)
        counts = np.bincount(topic)
        first_ms = np.full(len(counts), sys.maxsize)
        np.minimum.at(first_ms, topic, np.concatenate(dues))
        some = np.flatnonzero(counts)
        return some.astype(np.uint32), counts[some], first_ms[some]

    def _not_gone(self, second: int, entries: Rows) -> Rows:
        """Return those of a second's entries that are not gone, or whose hour is still in the far log."""
        partition = self._hours.partition(second // HOUR_SECONDS)
        if partition is None or not partition.gone:
            return entries
        return entries.compress(~partition.is_gone(entries["global_index"]))

    def _peek(self) -> int | None:
        """Return the first time anything on disk beyond the near queue is due."""
        second = self._hours.first_live_second(self._near.end)
        while second is not None:
            partition = self._hours.must(second // HOUR_SECONDS)
            if partition.seconds.chain(second % HOUR_SECONDS)[1] > _PEEK_MESSAGES_MAX:
                return max(second * SECOND_MS, self.cut.due_ms)
            pending = self.pending_in(second)
            if len(pending):
                return int(pending["due_ms"].min())
            second = self._hours.first_live_second(second + 1)
        return None
