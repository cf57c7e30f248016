"""Costs that must not grow: Python statements with the batch, open files with the hours."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tarry.wheel.hour_counts import HourCounts
from tarry.wheel.hour_partition import HourPartition
from tarry.wheel.near_queue import ENTRY
from tarry.wheel.second_wheel import SLOT, SLOTS_BYTES
from tarry.wheel.state import HOUR_MS, Appended, Numbers, Rows, WheelSettings
from tarry.wheel.wheel import Wheel
from tests import turns
from tests.wheel.sorted_list import START_MS


def lines_run(action: Callable[[], Any]) -> int:
    """How many Python lines of the wheel an action runs."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        count += event == "line" and "/wheel/" in frame.f_code.co_filename
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def grow(folder: Path, count: int, spread_ms: int, hours: int) -> dict[str, int]:
    """Lines run by each call on `count` messages spread over `spread_ms` of each of `hours`."""
    random = np.random.default_rng(2)
    due = START_MS + random.integers(0, spread_ms, count) + random.integers(0, hours, count) * HOUR_MS
    due[:hours] = START_MS + np.arange(hours) * HOUR_MS
    topic, mask, records = (due % 7 == 0).astype(np.uint32), np.zeros(count, np.uint64), [b"record"] * count
    wheel = Wheel(folder, WheelSettings())
    lines = {}

    def note(name: str, action: Callable[[], Any]) -> Any:
        results = []
        lines[name] = lines_run(lambda: results.append(action()))
        return results[0]

    where = note("append", lambda: wheel.append(due, topic, mask, records))
    note("units", lambda: wheel.units(where.hour, where.global_index))
    note("read", lambda: wheel.read(where.hour, where.global_index))
    note("parts", lambda: wheel.parts(where.hour, where.global_index, np.zeros(count, np.int64), 3))
    note("cancel", lambda: wheel.cancel(where.hour[::3], where.global_index[::3]))
    state = note("capture", wheel.capture)
    wheel = note("recover", lambda: Wheel.recover(folder, WheelSettings(), state))
    note("count", lambda: wheel.pending_per_second(START_MS // HOUR_MS))
    until_ms = START_MS + hours * HOUR_MS
    wheel.load_ahead(START_MS)
    note("front", lambda: wheel.front(until_ms, count))
    chosen = note("overtaking", lambda: wheel.overtaking(until_ms, count, count))
    overtaken = note("overtake", lambda: wheel.overtake(*chosen))
    taken = note("take", lambda: wheel.take(until_ms, count))
    assert (overtaken.topic == 1).all()
    assert len(overtaken) > 0
    assert len(taken) + len(overtaken) == count - len(range(0, count, 3))
    return lines


@pytest.mark.parametrize(("spread_ms", "hours"), [(1_000, 1), (3_000, 1), (2_000, 3)])
def test_no_call_runs_a_python_statement_per_message(tmp_path: Path, spread_ms: int, hours: int) -> None:
    few = grow(tmp_path / "few", 4_000, spread_ms, hours)  # more than an index held in memory has
    many = grow(tmp_path / "many", 10_000, spread_ms, hours)
    more = {name: many[name] - few[name] for name in few}
    assert {name: lines for name, lines in more.items() if lines > 100} == {}
    assert all(few.values())


HOURS = 4_096


def far_due(hours: int) -> NDArray[np.int64]:
    """Due times, one in each of so many hours in no order, from tomorrow on."""
    order = np.random.default_rng(6).permutation(hours)
    return START_MS + (24 + order) * HOUR_MS + order % HOUR_MS


def insert(wheel: Wheel, due_ms: NDArray[np.int64]) -> Appended:
    count = len(due_ms)
    return wheel.append(due_ms, np.zeros(count, np.uint32), np.zeros(count, np.uint64), [b"x" * 100] * count)


def calls_over(wheel: Wheel, hours: int) -> dict[str, Callable[[], Any]]:
    """Calls that name a message in each of so many hours, in the order they must be made in."""
    due = far_due(hours)
    first: list[Appended] = []

    def ids() -> tuple[Numbers, Numbers]:
        return first[0].hour, first[0].global_index

    return {
        "append": lambda: first.append(insert(wheel, due)),
        "append again": lambda: insert(wheel, due),
        "units": lambda: wheel.units(*ids()),
        "read": lambda: wheel.read(*ids()),
        "parts": lambda: wheel.parts(*ids(), np.zeros(hours, np.int64), 3),
        "cancel": lambda: wheel.cancel(*ids()),
        "capture": wheel.capture,
    }


def test_no_call_runs_a_python_statement_per_far_hour(tmp_path: Path) -> None:
    lines = []
    for hours in (HOURS // 4, HOURS):
        wheel = Wheel(tmp_path / str(hours), WheelSettings())
        lines.append({name: lines_run(call) for name, call in calls_over(wheel, hours).items()})
    few, many = lines
    assert {name: many[name] for name in many if many[name] > few[name] + 20} == {}


def test_4096_far_hours_cost_a_turn_no_more_than_25_ms(tmp_path: Path) -> None:
    best: dict[str, float] = {}
    for attempt in turns.tries():
        wheel = Wheel(tmp_path / str(attempt), WheelSettings())
        for name, call in calls_over(wheel, HOURS).items():
            best[name] = min(best.get(name, 1e9), turns.once_s(call))
        wheel.close()
    allowed_s = turns.bound_s(0.025)
    assert {name: took_s for name, took_s in best.items() if took_s > allowed_s} == {}


def test_a_thousand_more_messages_a_far_hour_cost_each_append_no_more_than_25_ms(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, WheelSettings())
    hours = np.arange(16)
    due = START_MS + 24 * HOUR_MS + np.repeat(hours, 63) * HOUR_MS  # as many as are still few
    turns.freeze()
    assert sorted(turns.once_s(lambda: insert(wheel, due)) for _ in range(40))[36] < turns.bound_s(0.025)
    assert len(wheel.partitions()) == 16  # they have been given files of their own


def test_an_append_after_which_thousands_of_far_hours_are_full_costs_no_more_than_25_ms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.wheel.placement._FULL_UNITS", 30)
    wheel = Wheel(tmp_path, WheelSettings())
    due = far_due(HOURS)
    for _ in range(29):
        insert(wheel, due)
    assert wheel.partitions() == ()
    assert turns.cpu_s(lambda: insert(wheel, due)) < turns.bound_s(0.025)
    assert len(wheel.partitions()) > 30


def test_a_checkpoint_costs_the_event_loop_the_open_hours_and_not_those_that_changed(tmp_path: Path) -> None:
    lines = []
    for hours in (50, 200):
        wheel = Wheel(tmp_path / str(hours), WheelSettings(hours_open_max=8))
        where = [insert(wheel, at) for at in np.sort(far_due(hours)).reshape(-1, 5)]
        assert len(wheel.partitions()) == hours
        lines.append([lines_run(wheel.capture)])
        for part in where:
            wheel.cancel(part.hour, part.global_index)
        lines[-1].append(lines_run(wheel.capture))
    assert lines[0] == lines[1]


def test_a_checkpoint_of_50000_far_hours_costs_the_event_loop_no_more_than_20_ms(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, WheelSettings())
    where = insert(wheel, far_due(50_000))
    turns.freeze()
    assert turns.once_s(wheel.capture) < turns.bound_s()
    took_s = []
    for part in turns.tries():
        wheel.cancel(where.hour[part::8], where.global_index[part::8])
        took_s.append(turns.once_s(wheel.capture))
    assert min(took_s) < turns.bound_s()
    assert Wheel.recover(tmp_path, WheelSettings(), wheel.capture()).pending == 25_000


def test_what_has_moved_from_the_far_log_frees_its_place_also_where_nothing_more_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.wheel.far_log.SEGMENT_UNITS", 512)
    wheel = Wheel(tmp_path, WheelSettings())
    hours = 500
    for _ in range(20):
        insert(wheel, far_due(hours))
    insert(wheel, far_due(20) + 10_000 * HOUR_MS)  # they stay
    for hour in range(24, 24 + hours):
        wheel.take(START_MS + (hour + 1) * HOUR_MS, 100)
        wheel.drop_hour(START_MS // HOUR_MS + hour)
    assert wheel.pending == 20
    assert sum(segment.units for segment in wheel.upkeep.far_segments()) < 4 * 512
    assert Wheel.recover(tmp_path, WheelSettings(), wheel.capture()).pending == 20


def test_large_records_are_written_once_where_they_stay_and_their_hours_keep_the_order(
    tmp_path: Path,
) -> None:
    wheel = Wheel(tmp_path, WheelSettings())
    due = np.repeat(START_MS + (24 + np.arange(10)) * HOUR_MS, 3)
    sizes = [100, 100_000, 100] + [100] * 27
    where = wheel.append(
        due, np.zeros(30, np.uint32), np.zeros(30, np.uint64), [b"x" * size for size in sizes]
    )
    assert wheel.partitions() == (START_MS // HOUR_MS + 24,)
    assert where.global_index.tolist() == [0, 1, 2] * 10


def test_a_digest_costs_the_same_however_many_messages_and_hours_there_are(tmp_path: Path) -> None:
    lines = []
    for hours in (100, 20_000):
        wheel = Wheel(tmp_path / str(hours), WheelSettings())
        insert(wheel, far_due(hours))
        insert(wheel, START_MS + 24 * HOUR_MS + np.arange(hours))
        lines.append(lines_run(wheel.digest))
        assert turns.cpu_s(wheel.digest) < turns.bound_s(0.005)
    assert lines[0] == lines[1]


def test_a_slice_of_a_second_costs_the_same_however_large_the_second(tmp_path: Path) -> None:
    lines = []
    for count in (5_000, 50_000):
        wheel = Wheel(tmp_path / str(count), WheelSettings())
        due = np.full(count, START_MS)
        wheel.append(due, np.zeros(count, np.uint32), np.zeros(count, np.uint64), [b""] * count)
        wheel.take(START_MS, 1)
        lines.append([lines_run(lambda: wheel.take(START_MS, 100)) for _ in range(20)])  # noqa: B023
    assert max(lines[1]) <= max(lines[0]) + 20  # there are more runs, of 32,768 messages each


def test_a_crowded_second_is_loaded_once_and_ahead_however_much_comes_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, entries = 0, HourPartition.entries

    def counted(self: HourPartition, units: Rows, global_index: Numbers) -> Rows:
        nonlocal loaded
        loaded += len(units)
        return entries(self, units, global_index)

    monkeypatch.setattr(HourPartition, "entries", counted)
    wheel = Wheel(tmp_path, WheelSettings(near_messages_max=1_000))

    def schedule(due_ms: int, count: int = 1) -> None:
        due = np.full(count, due_ms)
        wheel.append(due, np.zeros(count, np.uint32), np.zeros(count, np.uint64), [b""] * count)

    crowd_ms = START_MS + 12_500
    schedule(crowd_ms, 5_000)
    for now_ms in range(START_MS, crowd_ms - 1_000, 100):
        schedule(now_ms + 1_500)
        wheel.take(now_ms, 100)
    assert 5_000 <= loaded < 5_100
    taken = 0
    while len(slice_ := wheel.take(crowd_ms, 500)):
        taken += len(slice_)
        schedule(crowd_ms - 1_001)  # overdue, or soon to be
        schedule(crowd_ms + 600)
    assert taken >= 5_000
    assert loaded < 5_100


def test_what_is_soon_due_is_in_memory_before_anything_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = Wheel(tmp_path, WheelSettings())
    due = START_MS + np.random.default_rng(3).integers(0, 900, 300_000)
    wheel.append(due, np.zeros(len(due), np.uint32), np.zeros(len(due), np.uint64), [b""] * len(due))
    for _ in range(4):
        wheel.load_ahead(START_MS - 5_000)
    monkeypatch.delattr(HourPartition, "entries")
    first = wheel.take(START_MS + 999, 1_000)
    assert first.due_ms.tolist() == np.sort(due)[:1_000].tolist()


def test_a_crowded_second_that_was_due_while_nothing_ran_is_read_before_the_first_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel, soon_ms = Wheel(tmp_path, WheelSettings()), START_MS + 1_200_000
    due = np.append(soon_ms + np.random.default_rng(3).integers(0, 900, 300_000), START_MS)
    wheel.append(due, np.zeros(len(due), np.uint32), np.zeros(len(due), np.uint64), [b""] * len(due))
    assert len(wheel.take(START_MS, 10)) == 1
    again = Wheel.recover(tmp_path, WheelSettings(), wheel.capture())
    again.prepare()
    monkeypatch.delattr(HourPartition, "entries")
    first = again.take(soon_ms + 999, 10_000)
    assert first.due_ms.tolist() == np.sort(due)[1:10_001].tolist()


def test_when_the_next_is_due_costs_the_same_however_many_came_one_by_one(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, WheelSettings())
    wheel.load_ahead(START_MS)
    costs = []
    for count in (10, 300):
        for ms in range(count, 0, -1):
            due = np.array([START_MS + 1_500 + ms])
            wheel.append(due, np.zeros(1, np.uint32), np.zeros(1, np.uint64), [b""])
        costs.append(lines_run(wheel.next_due_ms))
        assert wheel.next_due_ms() == START_MS + 1_501
    assert costs[0] == costs[1]
    assert len(wheel.take(START_MS + 1_501, 10)) == 2
    assert wheel.next_due_ms() == START_MS + 1_502


def test_the_smallest_near_queue_still_loads_what_is_to_be_taken(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, WheelSettings(near_messages_max=1))
    due = START_MS + np.arange(5) * 1_000
    wheel.append(due, np.zeros(5, np.uint32), np.zeros(5, np.uint64), [b""] * 5)
    assert wheel.take(START_MS + 5_000, 10).due_ms.tolist() == due.tolist()


def test_no_column_is_searched_behind_the_last_hour_that_has_had_messages() -> None:
    counts = HourCounts()
    counts.add(500_000, 1)
    assert list(counts.from_hour(400_000)) == [500_000]
    assert lines_run(lambda: list(counts.from_hour(500_001))) < 10


def open_files(folder: Path) -> int:
    """How many files below the folder this process has open."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # what listed them is gone
            count += link.readlink().is_relative_to(folder)
    return count


def test_open_files_are_bounded_however_many_hours_are_touched(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, WheelSettings(hours_open_max=8))
    due = START_MS + np.arange(300) * HOUR_MS
    where = wheel.append(due, np.zeros(300, np.uint32), np.zeros(300, np.uint64), [b"x"] * 300)
    assert wheel.read(where.hour, where.global_index) == [b"x"] * 300
    wheel.cancel(where.hour[::2], where.global_index[::2])
    assert len(wheel.take(int(due[-1]), 1_000)) == 150
    assert 0 < open_files(tmp_path) <= 8 * 4
    wheel.close()
    assert open_files(tmp_path) == 0


def test_open_files_are_bounded_however_long_the_far_log_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.wheel.far_log.SEGMENT_UNITS", 32)
    wheel = Wheel(tmp_path, WheelSettings(hours_open_max=8))
    where = insert(wheel, far_due(1_000))
    assert len(wheel.upkeep.far_segments()) > 30
    assert wheel.read(where.hour, where.global_index) == [b"x" * 100] * 1_000
    wheel.cancel(where.hour[::2], where.global_index[::2])
    assert 0 < open_files(tmp_path) <= 1 + 8 * 3  # and the folder
    again = Wheel.recover(tmp_path, WheelSettings(hours_open_max=8), wheel.capture())
    wheel.close()
    assert 0 < open_files(tmp_path) <= 1 + 8 * 3
    assert again.digest() == wheel.digest()
    again.close()
    assert open_files(tmp_path) == 0


def test_sizes_are_as_promised() -> None:
    assert SLOTS_BYTES == 57_600
    assert SLOT.itemsize == 16
    assert ENTRY.itemsize == 24


def shed_and_grown(folder: Path, crowd: int) -> Wheel:
    """A wheel with a backlog of 200,000 messages in memory, and behind it a crowded second that is not."""
    wheel, random = Wheel(folder, WheelSettings()), np.random.default_rng(8)
    wheel.load_ahead(START_MS)

    def schedule(second: int, count: int) -> None:
        due = START_MS + second * 1_000 + random.integers(0, 1_000, count)
        wheel.append(due, np.zeros(count, np.uint32), np.zeros(count, np.uint64), [b""] * count)

    for second in range(4):
        schedule(second, 50_000)
    for _ in range(crowd // 50_000):
        schedule(5, 50_000)
        schedule(600, 50_000)
    return wheel


def test_no_take_of_a_backlog_pays_for_a_whole_crowded_second_behind_it(tmp_path: Path) -> None:
    crowd, most_s, slices = 600_000, [], 8  # of one turn
    for attempt in turns.tries():
        wheel = shed_and_grown(tmp_path / str(attempt), crowd)
        took_s, parts = [time.thread_time()], []
        while len(part := wheel.take(START_MS + 6_000, 10_000)):
            took_s.append(time.thread_time())
            parts.append(part.due_ms * (1 << 32) + part.global_index)
        order = np.concatenate(parts)
        assert len(order) == 200_000 + crowd
        assert bool((order[1:] > order[:-1]).all())
        most_s.append(float(np.convolve(np.diff(took_s), np.ones(slices)).max()))
        wheel.close()
    assert min(most_s) < turns.bound_s()


def jumped_to(folder: Path, crowds: dict[int, int]) -> tuple[float, Numbers]:
    """Return the most CPU time of consecutive takes of one turn after a jump of a minute, and what was taken.

    `crowds` are messages by second; of each fifth second there is one more, so that some come before.
    """
    wheel, random, slices = Wheel(folder, WheelSettings()), np.random.default_rng(8), 8
    wheel.load_ahead(START_MS)
    seconds = [np.repeat(second, 50_000) for second in crowds for _ in range(crowds[second] // 50_000)]
    for second in [*seconds, np.arange(0, 60, 5)]:
        due = START_MS + second * 1_000 + random.integers(0, 1_000, len(second))
        wheel.append(due, np.zeros(len(due), np.uint32), np.zeros(len(due), np.uint64), [b""] * len(due))
    state, most_s, parts = wheel.capture(), [], []
    wheel.close()
    for _ in turns.tries():
        wheel, parts = Wheel.recover(folder, WheelSettings(), state), []
        for now_ms in range(START_MS, START_MS + 1_000, 20):
            wheel.load_ahead(now_ms)
        took_s = [time.thread_time()]
        while len(part := wheel.take(START_MS + 60_000, 10_000)):
            took_s.append(time.thread_time())
            parts.append(part.due_ms * (1 << 32) + part.global_index)
        most_s.append(float(np.convolve(np.diff(took_s), np.ones(slices)).max()))
        wheel.close()
    return min(most_s), np.concatenate(parts)


@pytest.mark.parametrize("crowds", [{40: 1_000_000}, {30: 600_000, 50: 600_000}])
def test_no_take_pays_for_a_whole_crowded_second_that_the_clock_has_jumped_over(
    tmp_path: Path, crowds: dict[int, int]
) -> None:
    most_s, order = jumped_to(tmp_path, crowds)
    assert len(order) == sum(crowds.values()) + 12
    assert bool((order[1:] > order[:-1]).all())
    assert most_s < turns.bound_s()


@pytest.mark.parametrize(("before", "read"), [([1_000], 201_000), ([5_000] * 5, 15_000)])
def test_a_small_crowd_before_a_large_one_is_read_with_it_or_shares_it_among_enough_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: list[int], read: int
) -> None:
    loaded, entries, random = [0], HourPartition.entries, np.random.default_rng(5)

    def counted(self: HourPartition, units: Rows, global_index: Numbers) -> Rows:
        loaded[-1] += len(units)
        return entries(self, units, global_index)

    monkeypatch.setattr(HourPartition, "entries", counted)
    costs = {"_AHEAD_COST": 65_536, "_AT_ONCE_COST": 65_536, "_TAKE_COST": 4_096, "_FAR_MESSAGES_MAX": 12_500}
    for name, value in costs.items():
        monkeypatch.setattr(f"tarry.wheel.release.{name}", value)
    monkeypatch.setattr("tarry.wheel.index_scan.BLOCK_UNITS", 1_024)
    wheel, crowds = Wheel(tmp_path, WheelSettings()), [*before, 200_000]
    for place, crowd in enumerate(crowds):
        due = START_MS + 60_000 * (place + 1) + random.integers(0, 1_000, crowd)
        wheel.append(due, np.zeros(crowd, np.uint32), np.zeros(crowd, np.uint64), [b""] * crowd)
    for _ in range(200):
        wheel.load_ahead(START_MS)
    assert loaded == [read]
    parts = []
    while len(part := wheel.take(START_MS + HOUR_MS - 1, 100)):
        parts.append(part.due_ms * (1 << 32) + part.global_index)
        loaded.append(0)
    order = np.concatenate(parts)
    assert len(order) == sum(crowds)
    assert bool((order[1:] > order[:-1]).all())
    assert max(loaded[1:]) < 3_000
    assert sum(loaded) == sum(crowds)


def test_a_far_crowded_second_is_read_once_however_much_comes_before_it_and_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, entries, random = 0, HourPartition.entries, np.random.default_rng(5)

    def counted(self: HourPartition, units: Rows, global_index: Numbers) -> Rows:
        nonlocal loaded
        loaded += len(units)
        return entries(self, units, global_index)

    monkeypatch.setattr(HourPartition, "entries", counted)
    monkeypatch.setattr("tarry.wheel.release._AHEAD_COST", 65_536)
    monkeypatch.setattr("tarry.wheel.release._AT_ONCE_COST", 65_536)
    wheel, crowd, few, crowd_ms = Wheel(tmp_path, WheelSettings()), 50_000, 20, START_MS + 600_000
    expected: list[tuple[int, int]] = []

    def schedule(due: Numbers) -> Appended:
        where = wheel.append(
            due, np.zeros(len(due), np.uint32), np.zeros(len(due), np.uint64), [b""] * len(due)
        )
        expected.extend(zip(due.tolist(), where.global_index.tolist(), strict=True))
        return where

    first = schedule(crowd_ms + random.integers(0, 1_000, crowd))
    gone = {*first.global_index[::100].tolist()}
    for now_ms in range(START_MS, START_MS + 20_000, 50):
        wheel.load_ahead(now_ms)
        schedule(now_ms + random.integers(0, 30_000, few))
        schedule(crowd_ms + random.integers(0, 1_000, few))
        wheel.take(now_ms, 100)
    wheel.cancel(first.hour[::100], first.global_index[::100])
    # What is due after the jump, in order: nothing is missing, twice, or cancelled.
    cut = wheel.cut
    assert crowd < loaded < 1.5 * crowd
    took = []
    while len(part := wheel.take(crowd_ms + 999, 10_000)):
        took += zip(part.due_ms.tolist(), part.global_index.tolist(), strict=True)
    assert took == sorted(at for at in expected if at > cut and at[1] not in gone)
    assert loaded < 1.5 * crowd
