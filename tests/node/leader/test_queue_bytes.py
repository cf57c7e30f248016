"""Bytes that groups hold back, summed up as messages come."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tarry.node.leader.queue_bytes import BESIDE_BYTES, STEP_HOURS, STRETCH_UNITS, QueueBytes, Sums
from tarry.node.leader.retention import Kept
from tarry.node.repair.record_reads import RecordReads
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.wheel.cached_reads import NotCached
from tests.replication.commands import NOW_MS, ack, record, release, retry, schedule, subscribe, trim

HOUR_MS = 3_600_000


def test_sums_are_exact_at_the_end_of_each_stretch() -> None:
    sums, sizes = Sums(100), np.arange(1, 3 * STRETCH_UNITS + 11, dtype=np.int64)
    sums.extend(sizes[:-10])
    sums.extend(sizes[-10:])
    ends = [0, STRETCH_UNITS, 2 * STRETCH_UNITS, 3 * STRETCH_UNITS, len(sizes)]
    assert [sums.from_offset(100 + end) for end in ends] == [int(sizes[end:].sum()) for end in ends]
    assert [sums.offset_of(int(sizes[end:].sum())) for end in ends] == [100 + end for end in ends]
    assert sums.from_offset(0) == int(sizes.sum())  # trimmed since
    assert sums.from_offset(sums.end + 5) == 0  # released since
    assert sums.offset_of(int(sizes.sum()) + 1) == 100


def test_what_is_forgotten_changes_no_sum_behind_it() -> None:
    sums = Sums(0)
    for _ in range(10):
        sums.extend(np.full(STRETCH_UNITS, 7, np.int64))
    before = [sums.from_offset(offset) for offset in range(3_000, sums.end, 500)]
    sums.forget(3_000)
    assert sums.first == 2 * STRETCH_UNITS
    assert [sums.from_offset(offset) for offset in range(3_000, sums.end, 500)] == before


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    opened = Machine(tmp_path, MachineSettings())
    bodies = [b"x" * 1_000] * 3
    due_ms = [NOW_MS + at for at in range(3)]
    opened.apply(1, 1, [subscribe(), schedule(due_ms, bodies=bodies), release(NOW_MS + 10)])
    yield opened
    opened.close()


def on_disk(*bodies: int) -> int:
    return sum(len(record(b"x" * body)) + BESIDE_BYTES for body in bodies)


def held(machine: Machine, kept: Kept) -> int:
    asyncio.run(kept.measure())
    queues = machine.queues
    both = queues.of("t"), queues.of("t", "g")
    return sum(kept.bytes.from_offset(q.queue, queues.acknowledged["g", q.queue].floor) for q in both)


def test_a_group_holds_what_lies_behind_its_floor_and_its_retries(machine: Machine) -> None:
    kept = Kept(machine, 1)
    assert held(machine, kept) == on_disk(1_000, 1_000, 1_000)
    machine.apply(2, 1, [ack([0, 2])])
    assert held(machine, kept) == on_disk(1_000, 1_000)  # what is acknowledged behind the floor is held, too
    machine.apply(3, 1, [retry([1], NOW_MS + 20), release(NOW_MS + 30)])
    assert held(machine, kept) == on_disk(len(b"again"))
    machine.apply(4, 1, [ack([0], queue=machine.queues.of("t", "g").queue)])
    assert held(machine, kept) == 0


def test_a_group_that_goes_back_holds_what_it_went_back_over(machine: Machine) -> None:
    kept = Kept(machine, 1)
    machine.apply(2, 1, [ack([0, 1, 2])])
    assert held(machine, kept) == 0
    machine.queues.seek("t", "g", 1)
    assert held(machine, kept) == on_disk(1_000, 1_000)


def test_a_topic_that_is_deleted_is_forgotten(machine: Machine) -> None:
    kept = Kept(machine, 1)
    assert held(machine, kept)
    machine.queues.delete_topic("t")
    asyncio.run(kept.measure())
    assert kept.bytes._sums == {}


def test_a_backlog_over_many_hours_is_read_some_hours_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, hours = Machine(tmp_path / "many", MachineSettings()), 3 * STEP_HOURS
    due_ms = [NOW_MS + hour * HOUR_MS for hour in range(hours) for _ in range(3)]
    machine.apply(1, 1, [subscribe(), schedule(due_ms)])
    for day in range(hours // 24 + 1):
        machine.apply(2 + day, 1, [release(NOW_MS + day * 24 * HOUR_MS)])
    seen = []
    units = machine.wheel.units

    def counted(hour: np.ndarray, global_index: np.ndarray) -> np.ndarray:
        seen.append(len(np.unique(hour)))
        return units(hour, global_index)

    monkeypatch.setattr(machine.wheel, "units", counted)
    sums = asyncio.run(QueueBytes(machine).read(machine.queues.of("t"), 0))
    assert max(seen) == STEP_HOURS
    assert sums.from_offset(0) == sum(on_disk(len(b"%d" % due)) for due in due_ms)
    machine.close()


def test_what_is_trimmed_while_it_is_read_is_in_no_sum(machine: Machine) -> None:
    queue, trimmed = machine.queues.of("t"), False
    queue.flush()

    def pread(fd: int, size_bytes: int, offset: int) -> bytes:
        if not trimmed:
            raise NotCached
        return os.pread(fd, size_bytes, offset)

    async def read_ahead(_: object) -> None:
        nonlocal trimmed
        trimmed = True
        machine.apply(2, 1, [ack([0, 1]), trim([queue.queue], [2], [])])

    reads = RecordReads(machine, pread, read_ahead)
    sums = asyncio.run(QueueBytes(machine, reads).read(queue, 0))
    assert (sums.first, sums.end) == (2, 3)
    assert sums.from_offset(0) == on_disk(1_000)
