"""A scan in the order of due times, in pages, beside everything that may happen to a wheel between them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tarry.wheel.delay_log import UNIT_BYTES, DelayLog
from tarry.wheel.state import HOUR_MS, NONE, Cut, Rows, WheelSettings
from tarry.wheel.wheel import Wheel
from tests import turns as cost
from tests.wheel.sorted_list import START_MS
from tests.wheel.test_far_messages import SMALL, Played

END_MS = START_MS + 10**6 * HOUR_MS
START = Cut(0, NONE)
TOPICS = np.arange(7) < 5
"""Of the plain list, whose topics are due times modulo 7: those that are looked for."""
CHAINS = {"due_scan._FEW_UNITS": 0, "due_scan.CHAIN_START_UNITS": 0, "due_scan.CHAIN_STEP_UNITS": 0}
"""With which a scan never changes from chains to a pass."""


def chosen(topic: NDArray[np.uint32], tag_mask: NDArray[np.uint64]) -> NDArray[np.bool_]:
    flags: NDArray[np.bool_] = TOPICS[topic] & (tag_mask != 3)
    return flags


def is_chosen(due_ms: int) -> bool:
    return bool(TOPICS[due_ms % 7]) and due_ms % 11 != 3


def page(wheel: Wheel, after: Cut, size: int, end_ms: int = END_MS) -> tuple[list[tuple[int, int]], Cut]:
    """The next messages behind a position, (due_ms, global index), and the position to go on from."""
    scan = wheel.due_scan(chosen, after, end_ms)
    while len(scan.found) < size and not scan.is_over:
        scan.step()
    some = scan.found[:size]
    rows = list(zip(some["due_ms"].tolist(), some["global_index"].tolist(), strict=True))
    return rows, Cut(*rows[-1]) if len(scan.found) >= size else scan.seen


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("way", [CHAINS, {}], ids=["chains", "passes"])
def test_what_is_there_all_the_time_is_listed_once_whatever_happens_between_the_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, way: dict[str, int]
) -> None:
    for name, value in {**SMALL, **way, "due_scan.FOUND_MAX": 8}.items():
        monkeypatch.setattr(f"tarry.wheel.{name}", value)
    monkeypatch.setattr("tarry.wheel.due_scan._STEP_COST", 1)
    monkeypatch.setattr("tarry.wheel.due_scan.BLOCK_UNITS", 8)
    play = Played(tmp_path, seed)
    calls = [play.append, play.cancel, play.take, play.drop, play.open_hours, play.recover]
    for _ in range(8):
        for _ in range(4):
            play.append()
        before, after, listed = set(play.list.pending), START, list[tuple[int, int]]()
        while after < Cut(END_MS - 1, NONE):
            rows, after = page(play.wheel, after, int(play.random.integers(1, 20)))
            assert set(rows) <= set(play.list.pending)
            listed += rows
            if play.random.integers(2):
                calls[int(play.random.integers(len(calls)))]()
        assert listed == sorted(set(listed))
        throughout = {message for message in before & set(play.list.pending) if is_chosen(message[0])}
        assert throughout <= set(listed)
        assert all(is_chosen(due_ms) for due_ms, _ in listed)


@pytest.mark.parametrize("way", [{"due_scan._FEW_UNITS": 0}, {}], ids=["chains first", "passes"])
def test_one_scan_sees_what_changes_between_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: dict[str, int]
) -> None:
    for name, value in {**SMALL, **way, "due_scan.FOUND_MAX": 8}.items():
        monkeypatch.setattr(f"tarry.wheel.{name}", value)
    monkeypatch.setattr("tarry.wheel.due_scan._STEP_COST", 1)
    monkeypatch.setattr("tarry.wheel.due_scan.BLOCK_UNITS", 8)
    play = Played(tmp_path, 7)
    calls = [play.append, play.cancel, play.take, play.drop, play.open_hours]
    for _ in range(4):
        for _ in range(4):
            play.append()
        before, after = set(play.list.pending), START
        scan, listed = play.wheel.due_scan(chosen, START, END_MS), list[tuple[int, int]]()
        while not scan.is_over:
            scan.step()
            calls[int(play.random.integers(len(calls)))]()
            found = list(zip(scan.found["due_ms"].tolist(), scan.found["global_index"].tolist(), strict=True))
            listed += found
            after = Cut(*found[-1]) if found else after
            scan.forget(after)
        assert listed == sorted(set(listed))
        throughout = {message for message in before & set(play.list.pending) if is_chosen(message[0])}
        assert throughout <= set(listed)


@pytest.mark.parametrize("way", [CHAINS, {}], ids=["chains", "passes"])
def test_what_a_step_looks_at_was_read_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: dict[str, int]
) -> None:
    for name, value in {**SMALL, **way, "due_scan.FOUND_MAX": 8}.items():
        monkeypatch.setattr(f"tarry.wheel.{name}", value)
    monkeypatch.setattr("tarry.wheel.due_scan._STEP_COST", 1)
    monkeypatch.setattr("tarry.wheel.due_scan.BLOCK_UNITS", 8)
    monkeypatch.setattr(DelayLog, "held_units_max", 0)
    pread, block, units_mapped = os.pread, DelayLog.block, DelayLog.units_mapped
    read, looked = set[int](), set[int]()

    def noted(fd: int, size_bytes: int, offset: int) -> bytes:
        read.update(range(offset // UNIT_BYTES, (offset + size_bytes) // UNIT_BYTES))
        return pread(fd, size_bytes, offset)

    def block_noted(log: DelayLog, start: int, end: int) -> Rows:
        looked.update(range(start, end))
        return block(log, start, end)

    def units_noted(log: DelayLog, global_index: NDArray[np.uint32]) -> Rows:
        looked.update(global_index.tolist())
        return units_mapped(log, global_index)

    play, steps = Played(tmp_path, 3), 0
    for _ in range(20):
        play.append()
    for hour in play.wheel.hours():
        play.wheel.pending_per_second(hour)
    scan = play.wheel.due_scan(chosen, START, END_MS)
    with monkeypatch.context() as within:
        within.setattr(DelayLog, "block", block_noted)
        within.setattr(DelayLog, "units_mapped", units_noted)
        while not scan.is_over:
            ahead = scan.ahead()
            if ahead is not None:
                within.setattr(os, "pread", noted)
                ahead()
                within.setattr(os, "pread", pread)
                steps += 1
            scan.step()
            assert looked <= read or ahead is None
            read.clear()
            looked.clear()
    assert steps > 40


def test_an_hour_that_moves_out_of_the_far_log_while_it_is_looked_at_is_found(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, WheelSettings())
    hours = np.arange(20, 40)
    wheel.append(START_MS + hours * HOUR_MS, hours.astype(np.uint32), hours.astype(np.uint64), [b""] * 20)
    assert not wheel.partitions()
    for hour in (START_MS // HOUR_MS + hours).tolist():
        scan = wheel.due_scan(lambda topic, mask: topic >= 0, Cut(hour * HOUR_MS - 1, NONE), END_MS)
        scan.step()
        wheel.pending_per_second(hour)
        assert hour in wheel.partitions()
        while not scan.is_over:
            scan.step()
        assert scan.found["due_ms"].tolist() == list(range(hour * HOUR_MS, START_MS + 40 * HOUR_MS, HOUR_MS))


def test_a_scan_ends_where_it_is_told_to(tmp_path: Path) -> None:
    play = Played(tmp_path, 1)
    for _ in range(10):
        play.append()
    pending = sorted(message for message in play.list.pending if is_chosen(message[0]))
    middle_ms = pending[len(pending) // 2][0]
    rows, seen = page(play.wheel, Cut(pending[0][0] - 1, NONE), 10**6, middle_ms)
    assert rows == [message for message in pending if message[0] < middle_ms]
    assert seen == Cut(middle_ms - 1, NONE)


def large(folder: Path, due_ms: NDArray[np.int64]) -> Wheel:
    wheel = Wheel(folder, WheelSettings())
    for part in np.array_split(due_ms, 16):
        wheel.append(part, np.zeros(len(part), np.uint32), np.zeros(len(part), np.uint64), [b"x"] * len(part))
    return wheel


def test_pages_of_a_large_hour_cost_about_what_their_seconds_hold_and_no_step_takes_long(
    tmp_path: Path,
) -> None:
    """Also where a million are due in one second."""
    count, random = 1_000_000, np.random.default_rng(1)
    hour = large(tmp_path / "hour", START_MS + random.integers(0, HOUR_MS, count))
    second = large(tmp_path / "second", START_MS + random.integers(7_000, 8_000, count))
    timed = cost.Timed([0])
    for name, wheel in {"hour": hour, "second": second}.items():
        scan = wheel.due_scan(lambda topic, mask: topic == 0, START, END_MS)
        listed, after = 0, START
        while listed < 100_000:
            while len(scan.found) < 1_000 and not scan.is_over:
                timed.each(name, lambda _, scan=scan: scan.step())
            first = scan.found[:1_000]
            assert (np.diff(first["due_ms"]) >= 0).all()
            assert after < Cut(int(first["due_ms"][0]), int(first["global_index"][0]))
            after = Cut(int(first["due_ms"][-1]), int(first["global_index"][-1]))
            listed += len(first)
            scan.forget(after)
        assert scan.cost < 25 * count
    assert timed.too_long() == {}


def test_of_a_topic_with_little_in_a_large_hour_all_comes_with_a_page_that_looks_at_the_hour_twice(
    tmp_path: Path,
) -> None:
    count = 1_000_000
    due_ms = START_MS + np.random.default_rng(1).integers(0, HOUR_MS, count)
    wheel = Wheel(tmp_path, WheelSettings())
    topic = (np.arange(count) % 100_000 == 0).astype(np.uint32)
    wheel.append(due_ms, topic, np.zeros(count, np.uint64), [b"x"] * count)
    scan = wheel.due_scan(lambda topic, mask: topic == 1, START, END_MS)
    while not scan.is_over:
        scan.step()
    assert scan.found["due_ms"].tolist() == sorted(due_ms[topic == 1].tolist())
    assert scan.cost < 2.5 * count
