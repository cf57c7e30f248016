"""A view of what is pending at one moment: counted afterwards, from any thread, and exact all the same.

    capture, in one turn              counting, while the wheel goes on
    ┌ of each hour: its slots,  ┐     slots               copied: nothing is read for them
    │ how many units there are, │ ──► index units         written once, read anew from the file
    │ which are gone; the cut   │     units of the far log   along the hour's chain, from its head
    └───────────────────────────┘

What is read is proven: an index by the checksum that it had at the capture, a unit of the far log by its own
sum. Where an hour has been dropped, thinned or damaged since, counting raises ``ViewLost``.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, TypeAlias

import google_crc32c
import numpy as np
from pyroaring import BitMap

from tarry.wheel import far_log
from tarry.wheel.bitmaps import contains
from tarry.wheel.columns import groups
from tarry.wheel.delay_log import BLOCK_UNITS, INDEX_NAME, UNIT, UNIT_BYTES, on_index
from tarry.wheel.far_segment import FAR_UNIT, FAR_UNIT_BYTES, are_sound, segment_name
from tarry.wheel.hour_wheel import HourWheel
from tarry.wheel.state import HOUR_MS, HOUR_SECONDS, SECOND_MS, Cut, Flags, Masks, Numbers, Rows, Times

_WALKED_MAX: Final = 4_096
"""Units of a second that are walked along their chain; of more the whole index is read."""
_FAR_BEFORE: Final = struct.Struct("<16xq")
_UNIT_BEFORE: Final = struct.Struct("<20xI")

Wanted: TypeAlias = Callable[[Numbers, Masks], Flags]
"""Flags the units that are asked for, by their columns topic and tag_mask, shape (n,)."""


class ViewLost(Exception):
    """Some of a view is not on disk any more, or not as it was: capture another."""


class HourView(NamedTuple):
    """One hour as it was captured."""

    hour: int
    folder: Path
    units: int
    index_crc: int
    gone: BitMap
    far_row: int
    """The newest of its units in the far log; they follow those of the partition."""
    far_units: int


class Found(NamedTuple):
    """Pending messages of one hour, columns of shape (n,)."""

    due_ms: Times
    global_index: Numbers
    size: Numbers
    """Bytes of each record."""


@dataclass(frozen=True, slots=True, eq=False)
class PendingView:
    """The hours that were asked for, as they were; methods are for any thread, one at a time."""

    folder: Path
    cut: Cut
    now_ms: int
    hours: Mapping[int, HourView]
    """Those that have anything pending."""
    slots: Mapping[int, Numbers]
    """Of the hours whose seconds were asked for, and of that of ``now_ms``, pending messages by second,
    u4[3600], without the far log's."""
    present: tuple[int, int]
    """The newest unit of the second of ``now_ms``, and how many units it has, whatever became of them."""
    earlier: int
    """Pending in the hours before that of ``now_ms``."""
    far_first: int
    far_gone: Mapping[int, BitMap]

    def seconds(self, second: int, seconds: int) -> Numbers:
        """Return the number of pending messages of each second from `second` on, u4[seconds].

        Raises OSError and ViewLost.
        """
        first = second // HOUR_SECONDS
        hours = range(first, (second + seconds - 1) // HOUR_SECONDS + 1)
        begin = second - first * HOUR_SECONDS
        return np.concatenate([self._seconds_of(hour) for hour in hours])[begin : begin + seconds]

    def overdue(self) -> int:
        """Return how many messages are due by ``now_ms``. Raises OSError and ViewLost."""
        if self.cut.due_ms > self.now_ms:
            return 0
        hour, at = self.now_ms // HOUR_MS, self.now_ms // SECOND_MS % HOUR_SECONDS
        some = bool(self._seconds_of(hour)[at])
        return self.before_present() + (self._in_present_second(hour, at) if some else 0)

    def before_present(self) -> int:
        """Return how many messages are due before the second of ``now_ms``. Raises OSError and ViewLost."""
        at = self.now_ms // SECOND_MS % HOUR_SECONDS
        seconds = self._seconds_of(self.now_ms // HOUR_MS)[:at]
        return self.earlier + int(seconds.sum(dtype=np.int64))

    def matching(self, hour: int, wanted: Wanted) -> Iterator[Found]:
        """Yield an hour's pending messages that are wanted, in parts. Raises OSError and ViewLost."""
        view = self.hours.get(hour)
        if view is None:
            return
        if view.far_units:
            units = self._far_units(view)
            units = units[wanted(units["topic"], units["tag_mask"])]
            yield _found(view.hour, units, np.ascontiguousarray(units["global_index"]))
        for index, block in _index(view):
            chosen = np.flatnonzero(wanted(block["topic"], block["tag_mask"]))
            if len(chosen):
                units, at = block.take(chosen), index.take(chosen)
                pending = self._are_pending(view, units, at)
                yield _found(view.hour, units[pending], at[pending])

    def _seconds_of(self, hour: int) -> Numbers:
        """Return what is pending of each second of an hour, u4[3600]."""
        seconds, view = self.slots[hour], self.hours.get(hour)
        if view is None or not view.far_units:
            return seconds
        far = self._far_units(view)["due_in_hour_ms"] // np.uint32(SECOND_MS)
        return seconds + np.bincount(far, minlength=HOUR_SECONDS).astype(np.uint32)

    def _in_present_second(self, hour: int, second: int) -> int:
        """Count what is due in a second of an hour and by ``now_ms``."""
        view, last_ms = self.hours[hour], np.uint32(self.now_ms - hour * HOUR_MS)
        first_ms = np.uint32(second * SECOND_MS)
        count = 0
        if view.far_units:
            due_ms = self._far_units(view)["due_in_hour_ms"]
            count += int(((due_ms >= first_ms) & (due_ms <= last_ms)).sum())
        newest, length = self.present
        for index, units in _chain(view, newest, length) if length <= _WALKED_MAX else _index(view):
            due_ms = units["due_in_hour_ms"]
            chosen = np.flatnonzero((due_ms >= first_ms) & (due_ms <= last_ms))
            count += int(self._are_pending(view, units[chosen], index[chosen]).sum())
        return count

    def _are_pending(self, view: HourView, units: Rows, global_index: Numbers) -> Flags:
        pending = ~contains(view.gone, global_index)
        if view.hour <= self.cut.due_ms // HOUR_MS:
            due_ms = units["due_in_hour_ms"] + np.int64(view.hour * HOUR_MS)
            pending &= ~self.cut.has_passed(due_ms, global_index)
        return pending

    def _far_units(self, view: HourView) -> Rows:
        """Read the units of an hour that are in the far log; return those that are pending, FAR_UNIT[n]."""
        rows, read, row = list[int](), list[bytes](), view.far_row
        with ExitStack() as files:
            opened: dict[int, BinaryIO] = {}
            while len(read) < view.far_units and row >= self.far_first:
                number, place = divmod(row, far_log.SEGMENT_UNITS)
                if number not in opened:
                    opened[number] = files.enter_context(self._segment(number))
                unit = os.pread(opened[number].fileno(), FAR_UNIT_BYTES, place * FAR_UNIT_BYTES)
                if len(unit) < FAR_UNIT_BYTES:
                    break
                rows.append(row)
                read.append(unit)
                row = min(row, _FAR_BEFORE.unpack_from(unit)[0]) - 1
        units = np.frombuffer(b"".join(read), FAR_UNIT)
        expected = np.arange(view.units, view.units + view.far_units)
        if (
            len(units) < view.far_units
            or not bool(are_sound(units).all())
            or bool((units["hour"] != view.hour).any())
            or bool((np.sort(units["global_index"]) != expected).any())
        ):
            raise ViewLost(f"units of hour {view.hour} in the far log have moved, or are damaged")
        at = np.array(rows, np.int64)
        pending = np.ones(len(units), np.bool_)
        for number, chosen in groups(at // far_log.SEGMENT_UNITS):
            places = (at[chosen] - number * far_log.SEGMENT_UNITS).astype(np.uint32)
            pending[chosen] = ~contains(self.far_gone[number], places)
        return units[pending]

    def _segment(self, number: int) -> BinaryIO:
        try:
            return (self.folder / segment_name(number) / INDEX_NAME).open("rb", buffering=0)
        except FileNotFoundError:
            raise ViewLost(f"segment {number} of the far log has been deleted") from None


def capture(
    folder: Path, hours: HourWheel, cut: Cut, now_ms: int, seconds_of: Sequence[int], units_of: Sequence[int]
) -> PendingView:
    """Return a view of some hours: by seconds of some, by units of others.

    Costs a copy of the slots of each of the former, which should be open, and of what is gone of all.
    """
    present_hour, counts = now_ms // HOUR_MS, hours.counts
    by_second = {*seconds_of, present_hour}
    views = {hour: _view(hours, folder, hour) for hour in by_second.union(units_of) if counts.of(hour)}
    slots = {hour: _live_seconds(hours, cut, hour) for hour in by_second}
    partition, present = hours.partition(present_hour), (-1, 0)
    if partition is not None and present_hour in views:
        present = partition.seconds.chain(now_ms // SECOND_MS % HOUR_SECONDS)
    far_gone = hours.far.gone_of_segments() if any(view.far_units for view in views.values()) else {}
    earlier = counts.between(cut.due_ms // HOUR_MS, present_hour)
    return PendingView(folder, cut, now_ms, views, slots, present, earlier, hours.far.first, far_gone)


def _view(hours: HourWheel, folder: Path, hour: int) -> HourView:
    partition, counts = hours.partition(hour), hours.counts
    far_units = counts.far_of(hour)
    far_row = int(counts.head[hour]) - 1 if far_units else -1
    if partition is None:
        return HourView(hour, folder, 0, 0, BitMap(), far_row, far_units)
    log = partition.log
    return HourView(hour, log.folder, log.units, log.index_crc, BitMap(partition.gone), far_row, far_units)


def _live_seconds(hours: HourWheel, cut: Cut, hour: int) -> Numbers:
    """Return what is pending of each second of an hour, u4[3600], without what is in the far log."""
    pending = hours.counts.of(hour) - hours.counts.far_pending_of(hour)
    partition = hours.written(hour)
    if partition is None or not pending:
        return np.zeros(HOUR_SECONDS, np.uint32)
    live = partition.seconds.live()
    tick = cut.due_ms // SECOND_MS - hour * HOUR_SECONDS
    if tick >= 0:  # of the cut's second, slots count what is released, too
        live[:tick] = 0
        live[tick] = pending - int(live[tick + 1 :].sum(dtype=np.int64))
    return live


def _found(hour: int, units: Rows, global_index: Numbers) -> Found:
    due_ms = units["due_in_hour_ms"] + np.int64(hour * HOUR_MS)
    return Found(due_ms, global_index, np.ascontiguousarray(units["size"]))


def _open_index(view: HourView) -> BinaryIO:
    try:
        return on_index(view.folder, lambda path: path.open("rb", buffering=0))
    except FileNotFoundError:
        raise ViewLost(f"hour {view.hour} has been dropped") from None


def _index(view: HourView) -> Iterator[tuple[Numbers, Rows]]:
    """Yield the global indices and units of an hour's partition, in blocks."""
    if view.units == 0:
        return
    crc = 0
    with _open_index(view) as file:
        for start in range(0, view.units, BLOCK_UNITS):
            size_bytes = min(BLOCK_UNITS, view.units - start) * UNIT_BYTES
            block = file.read(size_bytes)
            if len(block) < size_bytes:
                break
            crc = google_crc32c.extend(crc, block)
            units = np.frombuffer(block, UNIT)
            yield np.arange(start, start + len(units), dtype=np.uint32), units
    if crc != view.index_crc:
        raise ViewLost(
            f"the index of hour {view.hour} is not what it was: it has been thinned, or is damaged"
        )


def _chain(view: HourView, newest: int, length: int) -> Iterator[tuple[Numbers, Rows]]:
    """Yield the global indices and units of a second's chain, all at once, the newest first."""
    if length == 0:
        return
    indices, read, index = list[int](), list[bytes](), newest
    with _open_index(view) as file:
        while len(read) < length and index < view.units:
            unit = os.pread(file.fileno(), UNIT_BYTES, index * UNIT_BYTES)
            if len(unit) < UNIT_BYTES:
                break
            indices.append(index)
            read.append(unit)
            (index,) = _UNIT_BEFORE.unpack_from(unit)
    units = np.frombuffer(b"".join(read), UNIT)
    second = units["due_in_hour_ms"] // np.uint32(SECOND_MS)
    if len(units) < length or bool((second != second[0]).any()):
        raise ViewLost(f"a second of hour {view.hour} has other units than its slot says")
    yield np.array(indices, np.uint32), units
