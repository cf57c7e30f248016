"""The upper wheel: one slot per hour that has messages, its partition on disk, a few of them open.

hours   … 2026112106   2026112107   2026112108 …… 2027010100 …… 2126112107
          released,    │◄── open ──────────┤ ├── opened when touched, the least lately used closed,
          to be dropped                          or in the far log, with or without a partition before

Who asks for a partition gets all of its hour: what is in the far log moves there first.
"""

from __future__ import annotations

import os
import shutil
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from tarry.wheel import thinning
from tarry.wheel.delay_log import UNIT, UNIT_BYTES, converted
from tarry.wheel.far_log import FarLog, whole
from tarry.wheel.far_segment import FAR_UNIT_BYTES, segment_name, segment_number
from tarry.wheel.hour_counts import HourCounts
from tarry.wheel.hour_partition import HourPartition, folder_name, hour_of
from tarry.wheel.page_budget import PageBudget
from tarry.wheel.pending_topics import PendingTopics
from tarry.wheel.state import HOUR_SECONDS, HourState, Numbers, WheelDamaged, WheelSettings, WheelState
from tarry.wheel.thinning import Thinned

_LARGE_UNITS: Final = 16_384
"""An hour with more is prepared at a start: its first use costs more than its share of a command."""


class HourWheel:
    """The hour partitions of one folder."""

    __slots__ = (
        "_budget",
        "_changed",
        "_folder",
        "_open",
        "_open_max",
        "_partitions",
        "_states",
        "counts",
        "dropped",
        "far",
        "settled",
        "thinned",
        "topics",
    )

    def __init__(self, folder: Path, settings: WheelSettings, state: WheelState | None) -> None:
        """Cut files back to `state`, and delete what it does not name; None: make an empty wheel.

        Raises OSError, and WheelDamaged where files lack what `state` says, or are there without one.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if state is not None:
            _cut_back(folder, state)
        elif (found := next(_folders(folder), None)) is not None:
            raise WheelDamaged(found[1], "is there already, and no state that says what it holds")
        state = state or WheelState()
        self._folder = folder
        self._open_max = settings.hours_open_max
        self._budget = PageBudget(settings.resident_bytes_max)
        self._partitions: dict[int, HourPartition] = {}
        self._open: OrderedDict[int, HourPartition] = OrderedDict()
        self.counts = HourCounts()
        self.topics = PendingTopics(state.topics)
        self.dropped: list[int] = []
        self.thinned: dict[int, Thinned] = {}
        """Hours whose thin index has taken the place of the other in memory, and on disk not for good yet."""
        self.settled: list[Thinned] = []
        """Hours in whose logs holes have been punched since, but for the last page."""
        self._states = {hour.hour: hour for hour in state.hours}
        self._changed: set[int] = set()  # of those that are open, and some more
        for hour in state.hours:
            path = folder / folder_name(hour.hour)
            self._partitions[hour.hour] = HourPartition(
                path, hour.hour, self._budget, self.counts.message_sum, hour
            )
            if hour.message_sum is None:
                self._changed.add(hour.hour)  # the next checkpoint is to have it
            self.counts.write(hour.hour, hour.units)
            self.counts.add(hour.hour, hour.pending)
        self.far = FarLog(folder, self._budget, self.counts, settings, state.far)

    def prepare(self) -> None:
        """Prove the index and check the slots of every large hour; a damaged one is left to its first use."""
        for hour, partition in self._partitions.items():
            if self.is_large(hour):
                self._use(partition)
                with suppress(OSError, WheelDamaged):
                    partition.seconds  # noqa: B018

    def is_large(self, hour: int) -> bool:
        """Return whether an hour's partition has so many units that it is prepared at a start."""
        partition = self._partitions.get(hour)
        return partition is not None and partition.units > _LARGE_UNITS

    def hours(self, end: int | None = None) -> tuple[int, ...]:
        """Return the hours that have units, ascending; only those before `end`, if given."""
        some = set(self._partitions)
        if self.far.live:
            some.update(np.flatnonzero(self.counts.far[:end]).tolist())
        return tuple(sorted(hour for hour in some if end is None or hour < end))

    @property
    def open_hours(self) -> int:
        """Partitions that are open."""
        return len(self._open)

    def partitions(self) -> tuple[int, ...]:
        """Return the hours that have a partition, ascending."""
        return tuple(sorted(self._partitions))

    def units(self, hour: int) -> int:
        """Return the number of messages that an hour has ever got."""
        partition = self._partitions.get(hour)
        return self.counts.far_of(hour) + (partition.units if partition else 0)

    def units_between(self, begin: int, end: int) -> int:
        """Return the number of units of the hours from `begin` on, before `end`, as of `Wheel`."""
        counts, some = self.counts, slice(begin, min(end, self.counts.end))
        found = counts.written[some].sum(dtype=np.int64) + counts.far[some].sum(dtype=np.int64)
        return int(found) + sum(map(self.units, counts.beyond(begin, end)))

    def find(self, hour: int) -> HourPartition | None:
        """Return the partition of an hour, whole and open from now on; None where there is none."""
        if self.counts.far_of(hour):
            self.settle(hour)
        return self.written(hour)

    def partition(self, hour: int) -> HourPartition | None:
        """Return an hour's partition as `written` does, without opening it."""
        return self._partitions.get(hour)

    def written(self, hour: int) -> HourPartition | None:
        """Return an hour's partition as `find` does, without what is in the far log."""
        partition = self._partitions.get(hour)
        if partition is not None:
            self._use(partition)
        return partition

    def ensure(self, hour: int) -> HourPartition:
        """Return the partition of an hour, created where there is none, open from now on. Raises OSError."""
        partition = self.find(hour)
        if partition is None:
            path = self._folder / folder_name(hour)
            partition = HourPartition(path, hour, self._budget, self.counts.message_sum)
            partition.folder.mkdir()
            self._partitions[hour] = partition
            self._use(partition)
        return partition

    def grown(self, partition: HourPartition, pending: int) -> None:
        """Count the units that a partition has got; `pending` of them are."""
        self.counts.write(partition.hour, partition.units)
        self.count(partition.hour, pending)

    def count(self, hour: int, pending: int) -> None:
        """Count `pending` more, or fewer, in the partition of an hour."""
        self.counts.add(hour, pending)
        self._changed.add(hour)

    def note_withdrawn(self, hour: int) -> None:
        """Note that units of an hour, open or closed, are withdrawn: the next checkpoint has to say so."""
        if hour in self._open:
            self._changed.add(hour)
        else:
            self._note(hour)  # now, as of an hour that is closed

    def settle(self, hour: int) -> int:
        """Move an hour's units from the far log behind its partition's; return the bytes of the records."""
        rows, units = self.far.rows_of(hour)
        gone = self.far.is_gone(rows)
        records = whole(*self.far.records(rows, units), units["size"])
        known = self._partitions.get(hour)
        if known is not None:
            known.prove()  # before anything is changed, for it may raise
        self.far.forget(hour, rows, units)  # so that the partition is not asked to settle again
        partition = self.ensure(hour)
        first = partition.append(records, converted(units, UNIT))
        self.grown(partition, 0)
        if bool(gone.any()):
            lost = np.flatnonzero(gone)
            partition.lose((lost + first).astype(np.uint32), units["due_in_hour_ms"][lost])
        self.far.clean(len(rows))
        return int(units["size"].sum(dtype=np.int64))

    def _use(self, partition: HourPartition) -> None:
        in_use = self._open
        in_use[partition.hour] = partition
        in_use.move_to_end(partition.hour)
        self._changed.add(partition.hour)
        if len(in_use) > self._open_max:
            closed = in_use.popitem(last=False)[1]
            closed.close()
            self._note(closed.hour)  # now, for a checkpoint could not do that for thousands at once

    def _note(self, hour: int) -> None:
        """Keep what a checkpoint must hold of an hour that may have changed."""
        self._changed.discard(hour)
        pending = self.counts.of(hour) - self.counts.far_pending_of(hour)
        self._states[hour] = self._partitions[hour].capture(pending)

    def first_live_second(self, second: int) -> int | None:
        """Return the first second (since the epoch) at or after `second` that may have something pending.

        An hour counts if it has pending messages, a second of it if it has units that are not gone.
        """
        for hour in self.counts.from_hour(second // HOUR_SECONDS):
            found = self.must(hour).seconds.first_live(max(0, second - hour * HOUR_SECONDS))
            if found is not None:
                return hour * HOUR_SECONDS + found
        return None

    def live_ahead(self, second: int, seconds: int) -> Numbers:
        """Count the units that are not gone, by second, from `second` (since the epoch) on, u4[seconds]."""
        live = np.zeros(seconds, np.uint32)
        for hour, begin, end in self.pending_parts(second, seconds):
            within = self.must(hour).seconds.live(begin % HOUR_SECONDS, end - hour * HOUR_SECONDS)
            live[begin - second : end - second] = within
        return live

    def pending_parts(self, second: int, seconds: int) -> Iterator[tuple[int, int, int]]:
        """Yield each hour of so many seconds that has anything pending, and the bounds of its seconds."""
        for hour in range(second // HOUR_SECONDS, (second + seconds - 1) // HOUR_SECONDS + 1):
            if self.counts.of(hour):
                begin = max(second, hour * HOUR_SECONDS)
                yield hour, begin, min(second + seconds, (hour + 1) * HOUR_SECONDS)

    def must(self, hour: int) -> HourPartition:
        """Return the partition of an hour that is known to have units, whole and open from now on."""
        partition = self.find(hour)
        assert partition is not None
        return partition

    def thin(self, thinned: Thinned) -> bool:
        """Go on with an hour's thin index; False, and nothing done, where the hour has changed since."""
        state = thinned.state
        partition = self._partitions.get(state.hour)
        path = self._folder / folder_name(state.hour)
        unchanged = (
            partition is not None
            and (partition.units, partition.log.index_crc) == (state.units, state.index_crc)
            and not self.counts.of(state.hour)
            and not self.counts.far_of(state.hour)
            and state.hour not in self.thinned
        )
        if partition is None or not unchanged:
            thinning.discard(path)
            return False
        thinning.adopt(path)
        partition.thin(thinned.index_crc)
        self._changed.add(state.hour)
        self.thinned[state.hour] = thinned
        return True

    def punch_tails(self) -> None:
        """Give back the last pages of logs in which holes were punched. Raises OSError."""
        settled, self.settled = self.settled, []
        for one in settled:
            partition = self._partitions.get(one.state.hour)
            if partition is not None and partition.log.index_crc == one.index_crc:  # it has not grown
                thinning.punch_tail(partition.folder, one)

    def drop(self, hour: int) -> None:
        """Forget an hour, nothing of which is pending. Its folder goes when no checkpoint names it."""
        self.far.drop(hour)
        partition = self._partitions.pop(hour, None)
        if partition is not None:
            self._open.pop(hour, None)
            self._states.pop(hour, None)
            self._changed.discard(hour)
            self.counts.write(hour, 0)
            self.thinned.pop(hour, None)
            partition.drop()
            self.dropped.append(hour)

    def state(self, hour: int) -> HourState | None:
        """Return the state of an hour's partition; None where there is none."""
        if self.written(hour) is None:
            return None
        self._note(hour)
        return self._states[hour]

    def capture(self) -> tuple[HourState, ...]:
        """Return the state of every partition, in no order. Costs those that are open."""
        for hour in tuple(self._changed):
            self._note(hour)
        self._changed.update(self._open)
        return tuple(self._states.values())

    def disk_bytes(self) -> int:
        """Return bytes of all files."""
        return self.far.disk_bytes() + sum(map(HourPartition.disk_bytes, self._partitions.values()))

    def close(self) -> None:
        """Close every file."""
        for partition in self._open.values():
            partition.close()
        self._open.clear()
        self.far.close()


def _folders(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in folder.iterdir():
        if hour_of(path.name) is not None or segment_number(path.name) is not None:
            yield path.name, path


def _cut_back(folder: Path, state: WheelState) -> None:
    there = set()
    for hour in state.hours:
        there.add(folder_name(hour.hour))
        path = folder / folder_name(hour.hour)
        thinning.recover(path, hour)
        _cut_file(path / "delay.log", hour.log_bytes)
        _cut_file(path / "delay.index", hour.units * UNIT_BYTES)
    for segment in state.far.segments:
        there.add(segment_name(segment.number))
        path = folder / segment_name(segment.number)
        _cut_file(path / "delay.log", segment.log_bytes)
        _fill_file(path / "delay.index", segment.units * FAR_UNIT_BYTES)  # the log has what it lacks
        _cut_file(path / "delay.index", segment.units * FAR_UNIT_BYTES)
    for name, path in _folders(folder):
        if name not in there:
            shutil.rmtree(path)


def _fill_file(path: Path, length: int) -> None:
    path.touch(mode=0o644)
    if path.stat().st_size < length:
        os.truncate(path, length)


def _cut_file(path: Path, length: int) -> None:
    try:
        there = path.stat().st_size
    except FileNotFoundError:
        raise WheelDamaged(path, f"missing, where {length} bytes should be") from None
    if there < length:
        raise WheelDamaged(path, f"{there} bytes, where {length} should be")
    if there > length:
        os.truncate(path, length)
