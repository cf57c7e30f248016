"""The far log: messages of hours that are far off and get few messages at a time, all in one log.

    far-0000000c/delay.log      ┌ unit │ record ┐┌ unit │ record ┐ …       of any hours
    far-0000000c/delay.index    ┌ hour, global index, before … ┐┌ … ┐ …    row 12 * SEGMENT_UNITS on

    hour 2027010100: head ──► row 7 ── before ──► row 3 ── before ──► 0

To open files for each of thousands of hours would cost each message some hundred microseconds; here a batch
is two writes. The units of an hour follow those of its partition, and move there, in their order, when the
hour is asked for as a whole: before it is due, or when it has got enough to be worth its files. Which rows
are alive follows from the counts of the hours: no row is ever changed. When more than half are not, the
oldest rows that are go to the end, a few with each append and each hour that moves, and their segment is
deleted: the cleaning of a log-structured file system (Rosenblum and Ousterhout, 1992).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from tarry.wheel import message_sum
from tarry.wheel.bitmaps import contains, loaded, serialized
from tarry.wheel.cached_reads import FilePlaces, Pread
from tarry.wheel.columns import distinct, groups, starts_of
from tarry.wheel.delay_log import Places, converted
from tarry.wheel.far_segment import FAR_UNIT, FAR_UNIT_BYTES, Segment, are_sound, segment_name
from tarry.wheel.hour_counts import HourCounts
from tarry.wheel.page_budget import PageBudget
from tarry.wheel.state import FarState, Flags, Numbers, Rows, WheelDamaged, WheelSettings

SEGMENT_UNITS: Final = 1 << 18
_BLOCK_UNITS: Final = 1 << 16
_SINGLE_WALKS: Final = 1_024  # so few chains are walked sooner one by one than side by side
_MENDED_CHAINS_MAX: Final = 128  # with more, segments are mended as a whole; a sector has units of 74
_CLEANED_MIN: Final = 256  # rows looked at with fewer messages
_CLEANED_BYTES: Final = 2 << 20  # of those that are alive: all of one append are fewer

FarRows = NDArray[np.int64]


class FarLog:
    """Far messages by rows, which are numbered through all segments."""

    __slots__ = (
        "_budget",
        "_counts",
        "_dropped_hours",
        "_dropped_hours_bytes",
        "_folder",
        "_open",
        "_open_max",
        "_read_gap_bytes",
        "_segments",
        "dropped",
        "end",
        "first",
        "live",
        "mended",
    )

    def __init__(
        self, folder: Path, budget: PageBudget, counts: HourCounts, settings: WheelSettings, state: FarState
    ) -> None:
        """Open the log as it was when `state` was captured; the files have been cut to that.

        `counts` has what is written of each hour, and gets what is far. Raises OSError, WheelDamaged.
        """
        self._folder = folder
        self._budget = budget
        self._counts = counts
        self._read_gap_bytes = settings.read_gap_bytes
        self._open: OrderedDict[int, Segment] = OrderedDict()
        self._open_max = settings.hours_open_max
        self._dropped_hours = loaded(state.dropped_hours)
        self._dropped_hours_bytes: bytes | None = state.dropped_hours
        self.dropped: list[int] = []
        """Segments that the files are still there of."""
        self.mended: set[int] = set()
        """Segments of whose index units were damaged when they were read, and have been mended."""
        self.first = self.end = state.first
        self.live = 0
        """Units of hours that have not been dropped."""
        self._segments: dict[int, Segment] = {}
        for one in state.segments:
            self._segments[one.number] = Segment(folder / segment_name(one.number), budget, one)
            if not self._used(one.number).is_whole():
                self._mend(one.number)
            self._count(self._used(one.number), one.number * SEGMENT_UNITS)
            self.end = one.number * SEGMENT_UNITS + one.units

    def _count(self, segment: Segment, start: int) -> None:
        counts = self._counts
        for begin in range(0, segment.units, _BLOCK_UNITS):
            units = segment.block(begin, min(segment.units, begin + _BLOCK_UNITS))
            row = np.arange(start + begin, start + begin + len(units))
            alive = (row >= self.first) & (units["global_index"] >= counts.written[units["hour"]])
            alive &= ~contains(self._dropped_hours, units["hour"])
            hour = units["hour"][alive]
            np.add.at(counts.far, hour, np.uint32(1))
            counts.head[hour] = row[alive] + 1
            index = (row - start).astype(np.uint32)
            pending = units["hour"][alive & ~contains(segment.gone, index)]
            np.add.at(counts.far_pending, pending, np.uint32(1))
            np.add.at(counts.pending, pending, np.uint32(1))
            counts.total += len(pending)
            counts.end = max(counts.end, int(pending.max(initial=0)) + 1)
            counts.message_sum.add(_sum_of(units[alive], contains(segment.gone, index[alive])))
            self.live += len(hour)

    # What comes

    def append(self, hour: Numbers, records: Sequence[bytes], messages: Rows) -> Numbers:
        """Append n messages, UNIT[n], n > 0; return their global indices. Raises OSError."""
        units = converted(messages, FAR_UNIT)
        units["hour"] = hour
        counts = self._counts
        order = np.argsort(hour, kind="stable")
        starts = starts_of(hour[order])
        added = np.diff(np.append(starts, len(hour)))
        distinct = hour[order[starts]]
        there = counts.written[distinct].astype(np.int64) + counts.far[distinct]
        units["global_index"][order] = np.arange(len(hour)) + np.repeat(there - starts, added)
        self._lay(units, records, order, starts)
        counts.far[distinct] += added.astype(np.uint32)
        counts.far_pending[distinct] += added.astype(np.uint32)
        counts.pending[distinct] += added.astype(np.uint32)
        counts.total += len(hour)
        counts.end = max(counts.end, int(distinct[-1]) + 1)
        counts.message_sum.add(_sum_of(units))
        self.live += len(hour)
        return np.ascontiguousarray(units["global_index"])

    def _lay(
        self, units: Rows, records: Sequence[bytes], order: NDArray[np.intp], starts: NDArray[np.intp]
    ) -> None:
        """Write rows, chained by hour: `order` has them by hour, and `starts` where an hour begins in it."""
        before = np.empty(len(units), np.int64)
        before[1:] = order[:-1] + self.end + 1
        ends = np.append(starts[1:], len(units)) - 1
        hours = units["hour"][order[starts]]
        before[starts] = self._counts.head[hours]
        units["before"][order] = before
        self._counts.head[hours] = order[ends] + self.end + 1
        done = 0
        while done < len(units):
            segment = self._last()
            until = min(len(units), done + SEGMENT_UNITS - segment.units)
            segment.extend(units[done:until], records[done:until])
            segment.captured = None
            self.end += until - done
            done = until

    def _last(self) -> Segment:
        number = self.end // SEGMENT_UNITS
        if number not in self._segments:
            segment = self._segments[number] = Segment(self._folder / segment_name(number), self._budget)
            segment.folder.mkdir()
        return self._used(number)

    def _used(self, number: int) -> Segment:
        """Return a segment, whose files are open from now on; the least lately used are closed."""
        segment = self._open[number] = self._segments[number]
        self._open.move_to_end(number)
        if len(self._open) > self._open_max:
            self._open.popitem(last=False)[1].close()
        return segment

    # What there is

    def find(self, hour: Numbers, global_index: Numbers) -> FarRows:
        """Return the rows of messages, places of shape (n,); -1: not in the far log. Raises WheelDamaged."""
        rows = np.full(len(hour), -1, np.int64)
        if self.live == 0:
            return rows
        counts = self._counts
        at = np.where(hour < len(counts), hour, 0)
        behind = global_index.astype(np.int64) - counts.written[at]
        left = np.flatnonzero((hour == at) & (behind >= 0) & (behind < counts.far[at]))
        heads, wanted = counts.head[at[left]] - 1, np.stack((hour[left], global_index[left]))
        try:
            rows[left] = self._found(heads, wanted)
        except WheelDamaged:
            self._mend_all()
            rows[left] = self._found(heads, wanted)
        return rows

    def _found(self, heads: FarRows, wanted: Numbers) -> FarRows:
        """Return the rows of messages as `_walked` does, having mended the chains on which it failed.

        Raises WheelDamaged where these are so many that whole segments should be mended.
        """
        rows = self._walked(heads, wanted)
        missed = np.flatnonzero(rows < 0)
        if len(missed) == 0:
            return rows
        hours = distinct(wanted[0, missed])
        if len(hours) <= _MENDED_CHAINS_MAX:
            for hour in hours.tolist():
                self._rows_of(hour)
            rows[missed] = self._walked(heads[missed], wanted[:, missed])
        if bool((rows < 0).any()):
            raise WheelDamaged(self._folder, f"units of {len(missed)} messages of the far log are damaged")
        return rows

    def _walked_singly(self, heads: FarRows, wanted: Numbers) -> FarRows:
        """Walk few chains, as `_walked` does: a step of all together costs as much as a thousand of one."""
        rows = np.fromiter(map(self._walked_one, heads.tolist(), *wanted.tolist()), np.int64, len(heads))
        found = np.flatnonzero(rows >= 0)
        units = self._stored_at(rows[found])
        sound = are_sound(units) & (units["hour"] == wanted[0, found])
        rows[found[~sound]] = -1
        return rows

    def _walked_one(self, row: int, hour: int, global_index: int) -> int:
        left = self._counts.far_of(hour)
        while left > 0 and self.first <= row < self.end:
            start = row // SEGMENT_UNITS * SEGMENT_UNITS
            index = self._used(row // SEGMENT_UNITS).index()
            numbers, before, end = index["global_index"].data, index["before"].data, start + len(index)
            while left > 0 and start <= row < end:
                if numbers[row - start] == global_index:
                    return row
                row, left = before[row - start] - 1, left - 1
        return -1

    def _walked(self, row: FarRows, wanted: Numbers) -> FarRows:
        """Walk from chains' heads to messages that exist, hours and global indices (2, n); return their rows.

        The row is -1 where a damaged unit is in the way. Of the units on the way only those found are proven:
        no damage before can lead to another's.
        """
        rows, left = np.full(len(row), -1, np.int64), np.arange(len(row))
        while len(left) > _SINGLE_WALKS:
            units = self._stored_at(row)
            found = units["global_index"] == wanted[1]
            sound = are_sound(units[found]) & (units["hour"][found] == wanted[0, found])
            rows[left[found]] = np.where(sound, row[found], -1)
            before = units["before"] - 1
            on = ~found & (before >= self.first) & (before < row)
            left, row, wanted = left[on], before[on], wanted[:, on]
        rows[left] = self._walked_singly(row, wanted)
        return rows

    def units_at(self, rows: FarRows) -> Rows:
        """Copy some units, FAR_UNIT[n], in the order asked; each must exist. Raises WheelDamaged."""
        units = self._stored_at(rows)
        sound = are_sound(units)
        if not bool(sound.all()):
            self._mend_rows(rows[~sound])
            units = self._stored_at(rows)
        return units

    def _stored_at(self, rows: FarRows) -> Rows:
        units = np.empty(len(rows), FAR_UNIT)
        for number, chosen in groups(rows // SEGMENT_UNITS):
            within = (rows[chosen] - number * SEGMENT_UNITS).astype(np.uint32)
            units[chosen] = self._used(number).units_at(within)
        return units

    def records(self, rows: FarRows, units: Rows, pread: Pread | None = None) -> tuple[list[bytes], Flags]:
        """Read the records of rows and their units; flag those that have their checksum."""
        records, sound = np.empty(len(rows), object), np.empty(len(rows), np.bool_)
        for number, chosen in groups(rows // SEGMENT_UNITS):
            some = self._used(number).records(units[chosen], self._read_gap_bytes, pread)
            records[chosen], sound[chosen] = some
        return records.tolist(), sound

    def places(self, rows: FarRows, units: Rows) -> list[FilePlaces]:
        """Return where the records of rows and their units lie."""
        return [self._used(number).places(units[chosen]) for number, chosen in groups(rows // SEGMENT_UNITS)]

    def parts(self, rows: FarRows, units: Rows, start: Places, bytes_max: int) -> list[bytes]:
        """Read parts of the records of rows and their units, as `DelayLog.parts` does."""
        parts = np.empty(len(rows), object)
        for number, chosen in groups(rows // SEGMENT_UNITS):
            segment = self._used(number)
            parts[chosen] = segment.parts(units[chosen], start[chosen], bytes_max, self._read_gap_bytes)
        return parts.tolist()

    def _mend(self, number: int, places: Places | None = None) -> None:
        """Mend a segment's index, at some places if given: all of it costs a turn of the loop 33 to 45 ms.

        Raises OSError, and WheelDamaged where its log lacks a unit as well.
        """
        segment = self._used(number)
        if (places is None or not segment.mend_units(places)) and not segment.mend_index():
            raise WheelDamaged(segment.index_path, "damaged, and so is what delay.log has of the same units")
        self.mended.add(number)

    def _mend_rows(self, rows: FarRows) -> None:
        """Mend the damaged units of rows, as `_mend` does."""
        for number, chosen in groups(rows // SEGMENT_UNITS):
            self._mend(number, distinct(rows[chosen]) - number * SEGMENT_UNITS)

    def _mend_all(self) -> None:
        for number in self._segments:
            if not self._used(number).is_whole():
                self._mend(number)

    def ids(self, number: int, places: Numbers) -> tuple[Numbers, Numbers]:
        """Return the hours and global indices of those rows of a segment, shape (n,), that are alive."""
        units = np.empty(0, FAR_UNIT)
        if number in self._segments:
            at = places.astype(np.int64) + number * SEGMENT_UNITS
            units = self.units_at(at)
            units = units[self._is_live(units) & (at >= self.first)]
        return np.ascontiguousarray(units["hour"]), np.ascontiguousarray(units["global_index"])

    def is_gone(self, rows: FarRows) -> Flags:
        """Flag the rows, shape (n,), that are cancelled."""
        gone = np.zeros(len(rows), np.bool_)
        for number, chosen in groups(rows // SEGMENT_UNITS):
            index = (rows[chosen] - number * SEGMENT_UNITS).astype(np.uint32)
            gone[chosen] = contains(self._segments[number].gone, index)
        return gone

    def gone_of_segments(self) -> dict[int, BitMap]:
        """Return which rows of each segment are cancelled, as copies, by the segment's number."""
        return {number: BitMap(segment.gone) for number, segment in self._segments.items()}

    def lose(self, rows: FarRows) -> Rows:
        """Cancel rows, which must be distinct and pending; return their units."""
        units = self.units_at(rows)
        counts = self._counts
        self._mark(rows)
        np.subtract.at(counts.far_pending, units["hour"], np.uint32(1))
        np.subtract.at(counts.pending, units["hour"], np.uint32(1))
        counts.total -= len(rows)
        counts.message_sum.add(message_sum.of_gone(units["hour"], units["global_index"]))
        return units

    def _mark(self, rows: FarRows) -> None:
        for number, chosen in groups(rows // SEGMENT_UNITS):
            segment = self._segments[number]
            segment.gone.update((rows[chosen] - number * SEGMENT_UNITS).astype(np.uint32))
            segment.captured = None

    def rows_of(self, hour: int) -> tuple[FarRows, Rows]:
        """Return the rows of an hour and their units, by global index. Raises WheelDamaged."""
        try:
            return self._rows_of(hour)
        except WheelDamaged:
            self._mend_all()
            return self._rows_of(hour)

    def _rows_of(self, hour: int) -> tuple[FarRows, Rows]:
        first, left = int(self._counts.written[hour]), self._counts.far_of(hour)
        for _ in range(left + 1):  # each walk mends a unit, and the next one gets beyond it
            rows = self._chain(hour)
            units = self._stored_at(rows)
            sound = are_sound(units)
            if bool(sound.all()):
                break
            self._mend_rows(rows[~sound])  # which have led the walk astray
        if len(rows) < left or not bool(sound.all()):
            raise WheelDamaged(self._folder, f"the far log lacks units of hour {hour}")
        order = np.argsort(units["global_index"], kind="stable")
        if bool((units["global_index"][order] != np.arange(first, first + left)).any()) or bool(
            (units["hour"] != hour).any()
        ):
            raise WheelDamaged(self._folder, f"the far log has other units than those of hour {hour}")
        return rows[order], units[order]

    def _chain(self, hour: int) -> FarRows:
        """Walk an hour's chain from its newest row; of its units none is proven."""
        left = self._counts.far_of(hour)
        row, walked = int(self._counts.head[hour]) - 1 if left else -1, list[int]()
        while len(walked) < left and self.first <= row < self.end:
            number = row // SEGMENT_UNITS
            start, before = number * SEGMENT_UNITS, self._used(number).index()["before"].data
            end = start + len(before)
            while start <= row < end and len(walked) < left:
                walked.append(row)
                row = before[row - start] - 1
        return np.array(walked, np.int64)

    def _is_live(self, units: Rows) -> Flags:
        counts = self._counts
        behind = units["global_index"].astype(np.int64) - counts.written[units["hour"]]
        live: Flags = (behind >= 0) & (behind < counts.far[units["hour"]])
        return live

    # What goes

    def forget(self, hour: int, rows: FarRows, units: Rows) -> None:
        """Remove an hour's units from the counts: they move to its partition, or are dropped."""
        self._counts.message_sum.add(-_sum_of(units, self.is_gone(rows)))
        self.live -= self._counts.far_of(hour)
        self._counts.far[hour] = self._counts.head[hour] = self._counts.far_pending[hour] = 0
        if self.live == 0:
            self._begin_at(self.end)

    def drop(self, hour: int) -> None:
        """Forget an hour for good, and its rows that moved to its partition; nothing of it is pending."""
        dead = self._counts.far_of(hour)
        if dead:
            self.forget(hour, *self.rows_of(hour))
        if self._segments:
            self._dropped_hours.add(hour)
            self._dropped_hours_bytes = None
        self.clean(dead)

    def clean(self, count: int) -> None:
        """Move the oldest living rows to the end, if more are dead than alive; `count` came or died."""
        dead = self.end - self.first - self.live
        if dead <= self.live + SEGMENT_UNITS:
            return
        number = self.first // SEGMENT_UNITS
        segment, start = self._used(number), number * SEGMENT_UNITS
        begin = self.first - start
        until = min(segment.units, begin + max(_CLEANED_MIN, 2 * count))
        units = segment.block(begin, until)
        sound = are_sound(units)
        if not bool(sound.all()):
            self._mend(number, np.flatnonzero(~sound) + begin)
            units = segment.block(begin, until)
        chosen = np.flatnonzero(self._is_live(units))
        if len(chosen):
            moved = units.take(chosen)
            fit = int(np.searchsorted(np.cumsum(moved["size"], dtype=np.int64), _CLEANED_BYTES)) + 1
            if fit < len(chosen):
                until = begin + int(chosen[fit])
                moved, chosen = moved[:fit], chosen[:fit]
            rows = chosen + self.first
            records, sound = self.records(rows, moved)
            gone = np.flatnonzero(self.is_gone(rows))
            order = np.argsort(moved["hour"], kind="stable")
            end = self.end
            self._lay(moved, whole(records, sound, moved["size"]), order, starts_of(moved["hour"][order]))
            self._mark(gone + end)
        self._begin_at(start + until)

    def _begin_at(self, first: int) -> None:
        """Set the first row; segments that lie before it go."""
        self.first = first
        ends = {number: number * SEGMENT_UNITS + s.units for number, s in self._segments.items()}
        for number in [number for number, end in ends.items() if end <= first]:
            self._segments.pop(number).close()
            self._open.pop(number, None)
            self.dropped.append(number)
        if not self._segments:  # the numbers of segments are never used again
            self.first = self.end = -(-first // SEGMENT_UNITS) * SEGMENT_UNITS
            self._dropped_hours = BitMap()
            self._dropped_hours_bytes = b""

    # Lasting

    def capture(self) -> FarState:
        """Return its checkpoint value."""
        if self._dropped_hours_bytes is None:
            self._dropped_hours_bytes = serialized(self._dropped_hours)
        segments = tuple(segment.capture(number) for number, segment in self._segments.items())
        return FarState(self.first, segments, self._dropped_hours_bytes)

    def disk_bytes(self) -> int:
        """Return bytes of its files."""
        return sum(s.log_bytes + s.units * FAR_UNIT_BYTES for s in self._segments.values())

    def close(self) -> None:
        """Close every file."""
        for segment in self._open.values():
            segment.close()
        self._open.clear()


def _sum_of(units: Rows, gone: Flags | None = None) -> int:
    hour, global_index = units["hour"], units["global_index"]
    found = message_sum.of_units(hour, global_index, units)
    if gone is not None and bool(gone.any()):
        found += message_sum.of_gone(hour[gone], global_index[gone])
    return found


def whole(records: Sequence[bytes], sound: Flags, sizes: Numbers) -> Sequence[bytes]:
    """Return records at their lengths, also where one was read too short: none moves for that."""
    if bool(sound.all()):
        return records
    return [
        record if len(record) == size else bytes(size)
        for record, size in zip(records, sizes.tolist(), strict=True)
    ]
