"""Far messages stay what they are, whatever moves, is cleaned, is dropped or comes back after a crash."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tarry.wheel import index_scan
from tarry.wheel.far_segment import FAR_UNIT_BYTES
from tarry.wheel.hour_counts import HOURS
from tarry.wheel.hour_partition import folder_name
from tarry.wheel.state import HOUR_MS, CancelOutcome, MessageState, WheelSettings, WheelState
from tarry.wheel.wheel import Wheel
from tests.wheel.sorted_list import START_MS, SortedList, append, ids, rows

SMALL = {
    "placement._DIRECT_HOURS": 0,
    "placement._DENSE_UNITS": 5,
    "placement._FULL_UNITS": 9,
    "placement._MOVED_BYTES": 1,
    "far_log.SEGMENT_UNITS": 16,
    "far_log._CLEANED_MIN": 3,
    "far_log._CLEANED_BYTES": 60,
}
"""With few messages, all that else takes hundreds of thousands."""


class Played:
    """A wheel, the plain list that it must be equal to, and what has happened since its checkpoint."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.folder = folder
        self.settings = WheelSettings(hours_open_max=2, near_messages_max=8)
        self.wheel, self.list = Wheel(folder, self.settings), SortedList()
        self.names: list[tuple[int, int]] = []
        self.synced = WheelState()
        self.commands: list[Callable[[Wheel], Any]] = []
        self.now_ms = START_MS

    def do(self, command: Callable[[Wheel], Any]) -> Any:
        self.commands.append(command)
        return command(self.wheel)

    def append(self) -> None:
        # hours of most of which there is something already, and some that are new
        hours = self.random.integers(0, 40, int(self.random.integers(1, 24)))
        due = (self.now_ms + hours**2 // 20 * HOUR_MS + self.random.integers(0, 3, len(hours))).tolist()
        names = self.do(lambda wheel: append(wheel, due))
        assert names == self.list.append(due)
        self.names += names

    def some(self) -> list[tuple[int, int]]:
        return [self.names[at] for at in self.random.integers(0, len(self.names), 8).tolist()]

    def cancel(self) -> None:
        chosen = self.some()
        expected = [self.list.cancel([name])[0] for name in chosen]
        assert self.do(lambda wheel: wheel.cancel(*ids(chosen)).outcomes).tolist() == expected

    def take(self) -> None:
        self.now_ms += int(self.random.integers(0, 3 * HOUR_MS))
        now_ms, count = self.now_ms, int(self.random.integers(1, 30))
        taken = rows(self.do(lambda wheel: wheel.take(now_ms, count)))
        assert taken == self.list.take(now_ms, count)

    def drop(self) -> None:
        gone = [hour for hour in self.list.sizes if (hour + 1) * HOUR_MS <= self.list.cut.due_ms]
        for hour in gone[:2]:
            self.do(lambda wheel, hour=hour: wheel.drop_hour(hour))
            self.list.drop_hour(hour)
        self.names = [name for name in self.names if name[0] not in gone[:2]]

    def checkpoint(self) -> None:
        self.synced = self.wheel.capture()
        self.wheel.sync(self.synced)
        self.commands.clear()

    def checkpoint_alone(self) -> None:
        """Have all gone that only checkpoints before the last one named."""
        self.checkpoint()
        self.checkpoint()
        named = {folder_name(hour.hour) for hour in self.synced.hours}
        assert self.folders() == named | {f"far-{one.number:08x}" for one in self.synced.far.segments}

    def recover(self) -> None:
        digest = self.wheel.digest()
        if self.random.integers(2):  # it crashes when all is synced, and before the state is committed
            self.wheel.sync(self.wheel.capture())
        self.wheel.close()
        self.wheel = Wheel.recover(self.folder, self.settings, self.synced)
        for command in self.commands:
            command(self.wheel)
        assert self.wheel.digest() == digest

    def look(self) -> None:
        assert self.wheel.pending == len(self.list.pending)
        assert set(self.wheel.hours()) == set(self.list.sizes)
        chosen = self.some()
        assert [self.wheel.state(*name) for name in chosen] == [self.list.states[name] for name in chosen]
        units = self.wheel.units(*ids(chosen))
        due_ms = [hour * HOUR_MS for hour, _ in chosen] + units["due_in_hour_ms"]
        assert self.wheel.read(*ids(chosen)) == [b"due %d" % at for at in due_ms.tolist()]
        behind = [(hour, self.list.sizes[hour]) for hour, _ in chosen]  # were never given
        assert {self.wheel.state(*name) for name in behind} == {MessageState.NOT_FOUND}

    def open_hours(self) -> None:
        """Move what is far of some hours, or of all, to their partitions; no answer changes by that."""
        hours = self.wheel.hours()
        for hour in hours[int(self.random.integers(-len(hours), len(hours))) :]:
            self.wheel.pending_per_second(hour)

    def folders(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}


@pytest.mark.parametrize("seed", range(2))
def test_whatever_is_done_to_far_messages_they_are_a_sorted_list_and_files_go_when_they_are_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    for name, value in SMALL.items():
        monkeypatch.setattr(f"tarry.wheel.{name}", value)
    play = Played(tmp_path, seed)
    calls = [play.append, play.append, play.cancel, play.take, play.drop, play.open_hours]
    calls += [play.checkpoint, play.checkpoint_alone, play.recover]
    last = 0
    for step in range(160):
        if step < 160 // 8 or not play.names:
            play.append()
        else:
            calls[int(play.random.integers(len(calls)))]()
        if play.names:
            play.look()
        last = max([last, *(segment.number for segment in play.wheel.upkeep.far_segments())])
    assert last > 10  # segments were written and freed


def test_hours_beyond_those_that_are_counted_in_columns_have_files_of_their_own(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, WheelSettings())
    due = [(HOURS - 10 + at) * HOUR_MS + at for at in range(20)]
    names = append(wheel, [START_MS, *due])[1:]
    wheel.cancel(*ids(names[::2]))
    state = wheel.capture()
    wheel.sync(state)
    again = Wheel.recover(tmp_path, WheelSettings(), state)
    assert again.digest() == wheel.digest()
    assert again.hours() == (START_MS // HOUR_MS, *range(HOURS - 10, HOURS + 10))
    outcomes = [CancelOutcome.ALREADY_CANCELLED, CancelOutcome.CANCELLED] * 10
    assert again.cancel(*ids(names)).outcomes.tolist() == outcomes
    assert [again.pending_in_hour(hour) for hour in again.hours() if again.pending_in_hour(hour)] == [1]


def few_of_each(wheel: Wheel, hours: int, each: int) -> None:
    append(wheel, [START_MS + (24 + hour) * HOUR_MS for hour in range(hours) for _ in range(each)])


def test_hours_with_enough_in_the_far_log_get_their_files_some_with_each_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel, hours = Wheel(tmp_path, WheelSettings()), []
    for _ in range(5):
        few_of_each(wheel, 16, 60)
        hours.append(len(wheel.partitions()))
    assert hours == [0, 0, 8, 16, 16]  # 1 + 960 // 128 of them at a time
    monkeypatch.setattr("tarry.wheel.placement._MOVED_BYTES", 1_000)
    wheel = Wheel(tmp_path / "large", WheelSettings())
    for _ in range(3):
        few_of_each(wheel, 16, 60)
    assert len(wheel.partitions()) == 1


def test_no_hour_is_left_in_the_far_log_while_others_move(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, WheelSettings())
    for _ in range(60):
        few_of_each(wheel, 136, 30)
    left = wheel._hours.counts.far
    assert left.max() < 700


def test_each_checkpoint_has_what_the_far_log_has_got_and_lost_by_then(tmp_path: Path) -> None:
    wheel, captured = Wheel(tmp_path, WheelSettings()), []
    for _ in range(2):
        few_of_each(wheel, 16, 1)
        captured += wheel.capture().far.segments
    wheel.cancel(*ids([(START_MS // HOUR_MS + 24, 0)]))
    captured += wheel.capture().far.segments
    assert [segment.units for segment in captured] == [16, 32, 32]
    assert captured[1].cancelled != captured[2].cancelled


def test_the_number_of_a_segment_is_not_used_again(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, WheelSettings())
    few_of_each(wheel, 16, 1)
    for hour in wheel.hours():
        wheel.pending_per_second(hour)  # moves it
    assert wheel.upkeep.far_segments() == ()
    few_of_each(wheel, 16, 1)
    assert [segment.number for segment in wheel.upkeep.far_segments()] == [1]


def test_few_hours_get_files_of_their_own_in_one_append(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, WheelSettings())
    few_of_each(wheel, 40, 70)
    assert len(wheel.partitions()) == 24


@pytest.mark.parametrize(("by_chains", "hours"), [(False, [1, 2, 3]), (True, [2, 3, 4])])
def test_no_more_than_one_hour_is_opened_ahead_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_chains: bool, hours: list[int]
) -> None:
    if by_chains:  # which pays where most of an hour's messages are cancelled; the next hour is looked into
        monkeypatch.setattr(index_scan, "CHAIN_STEP_UNITS", 0)
        monkeypatch.setattr(index_scan, "CHAIN_START_UNITS", 0)
    wheel = Wheel(tmp_path, WheelSettings(near_ms=20 * HOUR_MS))
    few_of_each(wheel, 16, 1)
    assert wheel.partitions() == ()
    opened = []
    for _ in range(3):
        wheel.load_ahead(START_MS + 24 * HOUR_MS)
        opened.append(len(wheel.partitions()))
    assert opened == hours


def forced_by(wheel: Wheel, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    forced: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(
            os,
            "fsync",
            lambda fd: forced.append(
                os.path.relpath(Path(f"/proc/self/fd/{fd}").readlink(), folder.resolve())
            ),
        )
        wheel.sync(wheel.capture())
    return sorted(forced)


def test_of_the_far_log_only_what_has_grown_is_forced_to_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = Wheel(tmp_path, WheelSettings())
    files = ["far-00000000/delay.index", "far-00000000/delay.log"]
    few_of_each(wheel, 16, 1)
    assert forced_by(wheel, tmp_path, monkeypatch) == [".", "far-00000000", *files]
    few_of_each(wheel, 16, 1)
    assert forced_by(wheel, tmp_path, monkeypatch) == files
    assert forced_by(wheel, tmp_path, monkeypatch) == []


def test_a_far_record_that_cannot_be_read_moves_none_of_its_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = Wheel(tmp_path, WheelSettings())
    due = [START_MS + (24 + at % 16) * HOUR_MS + at for at in range(64)]
    names = append(wheel, due)
    whole = os.pread

    def bad_at_the_first(fd: int, size: int, offset: int) -> bytes:
        is_of_records = Path(f"/proc/self/fd/{fd}").readlink().suffix != ".index"
        if is_of_records and offset <= FAR_UNIT_BYTES + 2 < offset + size:
            raise OSError(errno.EIO, "bad sector")
        return whole(fd, size, offset)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", bad_at_the_first)
        for hour, _ in names[:16]:
            wheel.pending_per_second(hour)  # moves it
    assert wheel.upkeep.far_segments() == ()
    assert wheel.read(*ids(names)) == [None, *(b"due %d" % at for at in due[1:])]


@pytest.mark.parametrize("opened_again", [False, True])
def test_what_is_in_the_far_log_alone_is_found_as_next(tmp_path: Path, opened_again: bool) -> None:
    wheel = Wheel(tmp_path, WheelSettings())
    due = [START_MS + (24 + at) * HOUR_MS + at for at in range(16)]
    append(wheel, due)
    assert wheel.partitions() == ()
    if opened_again:
        state = wheel.capture()
        wheel.sync(state)
        wheel.close()
        wheel = Wheel.recover(tmp_path, WheelSettings(), state)
    assert wheel.next_due_ms() == due[0]
    assert [at for at, _, _ in rows(wheel.take(due[-1], 100))] == due


def test_what_is_in_partitions_alone_is_found_as_next(tmp_path: Path) -> None:
    wheel, due = Wheel(tmp_path, WheelSettings()), [START_MS, START_MS + 24 * HOUR_MS]
    append(wheel, due)
    assert wheel.upkeep.far_segments() == ()
    assert wheel.next_due_ms() == due[0]
    assert [at for at, _, _ in rows(wheel.take(due[-1], 100))] == due
