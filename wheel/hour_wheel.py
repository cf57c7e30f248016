"""The upper wheel: one slot per hour that has messages, its partition on disk, a few of them open.

hours   … 2026112106   2026112107   2026112108 …… 2027010100 …… 2126112107
          released,    │◄── open ──────────┤ ├── opened when touched, the least lately used closed
          to be dropped
"""

from __future__ import annotations

import os
import shutil
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tarry.wheel.delay_log import UNIT_BYTES
from tarry.wheel.hour_partition import HourPartition, folder_name, hour_of
from tarry.wheel.next_due import PendingHours, PendingTopics
from tarry.wheel.residency import Residency
from tarry.wheel.state import HOUR_SECONDS, HourState, Numbers, WheelDamaged, WheelSettings


class HourWheel:
    """The hour partitions of one folder."""

    __slots__ = ("_folder", "_open", "_partitions", "_residency", "dropped", "open_max", "pending", "topics")

    def __init__(self, folder: Path, settings: WheelSettings) -> None:
        """An empty wheel. Raises WheelDamaged where the folder holds hours: `recover` is for those."""
        folder.mkdir(parents=True, exist_ok=True)
        for hour, path in _folders(folder):
            raise WheelDamaged(path, f"hour {hour} is there already, and no state that says what it holds")
        self._start(folder, settings)

    def _start(self, folder: Path, settings: WheelSettings) -> None:
        self._folder = folder
        self.open_max = settings.hours_open_max
        self._residency = Residency(settings.resident_bytes_max)
        self._partitions: dict[int, HourPartition] = {}
        self._open: OrderedDict[int, HourPartition] = OrderedDict()
        self.pending = PendingHours()
        self.topics = PendingTopics()
        self.dropped: list[int] = []

    @classmethod
    def recover(cls, folder: Path, settings: WheelSettings, states: tuple[HourState, ...]) -> HourWheel:
        """Cut files back to their states, delete hours that have none. Raises WheelDamaged and OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        wheel = cls.__new__(cls)
        wheel._start(folder, settings)
        for state in states:
            partition = HourPartition(folder / folder_name(state.hour), state.hour, wheel._residency, state)
            _cut(partition.log.log_path, state.log_bytes)
            _cut(partition.log.index_path, state.units * UNIT_BYTES)
            wheel._partitions[state.hour] = partition
            wheel.pending.add(state.hour, state.pending)
        for hour, path in _folders(folder):
            if hour not in wheel._partitions:
                shutil.rmtree(path)
        return wheel

    def __iter__(self) -> Iterator[HourPartition]:
        """The partitions by hour."""
        return map(self._partitions.__getitem__, self.hours())

    def hours(self) -> tuple[int, ...]:
        """The hours that have a partition, ascending."""
        return tuple(sorted(self._partitions))

    def units(self, hour: int) -> int:
        """How many messages an hour that has a partition has ever got; it is not opened for it."""
        return self._partitions[hour].units

    def find(self, hour: int) -> HourPartition | None:
        """The partition of an hour, open from now on; None where there is none."""
        partition = self._partitions.get(hour)
        if partition is not None:
            self._use(partition)
        return partition

    def ensure(self, hour: int) -> HourPartition:
        """The partition of an hour, created where there is none, open from now on. Raises OSError."""
        partition = self._ensured(hour)
        self._use(partition)
        return partition

    def resting(self, hour: int) -> HourPartition | None:
        """The partition of an hour, made where there is none, if it is small and closed. Raises OSError."""
        partition = None if hour in self._open else self._ensured(hour)
        return partition if partition is not None and partition.is_small else None

    def _ensured(self, hour: int) -> HourPartition:
        partition = self._partitions.get(hour)
        if partition is None:
            partition = HourPartition(self._folder / folder_name(hour), hour, self._residency)
            partition.folder.mkdir()
            self._partitions[hour] = partition
        return partition

    def _use(self, partition: HourPartition) -> None:
        in_use = self._open
        in_use[partition.hour] = partition
        in_use.move_to_end(partition.hour)
        if len(in_use) > self.open_max:
            in_use.popitem(last=False)[1].close()

    def first_live_second(self, second: int) -> int | None:
        """The first second (since the epoch) at or after `second` that may have something pending.

        An hour counts if it has pending messages, a second of it if it has units that are not gone.
        """
        for hour in self.pending.from_hour(second // HOUR_SECONDS):
            found = self.must(hour).seconds.first_live(max(0, second - hour * HOUR_SECONDS))
            if found is not None:
                return hour * HOUR_SECONDS + found
        return None

    def live_ahead(self, second: int, seconds: int) -> Numbers:
        """How many units of each of some seconds, from `second` (since the epoch) on, are not gone."""
        live = np.zeros(seconds, np.uint32)
        for hour in range(second // HOUR_SECONDS, (second + seconds - 1) // HOUR_SECONDS + 1):
            begin, end = max(second, hour * HOUR_SECONDS), min(second + seconds, (hour + 1) * HOUR_SECONDS)
            if self.pending.of(hour):
                within = self.must(hour).seconds.live(begin % HOUR_SECONDS, end - hour * HOUR_SECONDS)
                live[begin - second : end - second] = within
        return live

    def must(self, hour: int) -> HourPartition:
        """The partition of an hour that is known to have one, open from now on."""
        partition = self._partitions[hour]
        self._use(partition)
        return partition

    def drop(self, hour: int) -> None:
        """Forget an hour, nothing of which is pending. Its folder goes when no checkpoint names it."""
        partition = self._partitions.pop(hour, None)
        if partition is not None:
            self._open.pop(hour, None)
            partition.close()
            self.dropped.append(hour)

    def state(self, hour: int) -> HourState | None:
        """The state of an hour, which is not opened for it; None where there is none."""
        partition = self._partitions.get(hour)
        return None if partition is None else partition.capture(self.pending.of(hour))

    def capture(self) -> tuple[HourState, ...]:
        """The state of every hour, ascending."""
        return tuple([partition.capture(self.pending.of(partition.hour)) for partition in self])

    def close(self) -> None:
        """Close every file."""
        for partition in self._open.values():
            partition.close()
        self._open.clear()


def _folders(folder: Path) -> Iterator[tuple[int, Path]]:
    for path in folder.iterdir():
        hour = hour_of(path.name)
        if hour is not None:
            yield hour, path


def _cut(path: Path, length: int) -> None:
    try:
        there = path.stat().st_size
    except FileNotFoundError:
        raise WheelDamaged(path, f"missing, where {length} bytes should be") from None
    if there < length:
        raise WheelDamaged(path, f"{there} bytes, where {length} should be")
    if there > length:
        os.truncate(path, length)
