"""What is read ahead at once is bounded, and work that lacks something begins again until it does not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tarry.node.repair import record_reads
from tarry.node.repair.record_reads import ATTEMPTS_MAX, RecordsNotCached
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.wheel.cached_reads import FilePlaces, NotCached, Pread
from tests.node.cold_disk import ColdDisk
from tests.replication.commands import NOW_MS, schedule


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path, MachineSettings())
    yield machine
    machine.close()


def names(machine: Machine, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Schedule messages; return their hours and global indices."""
    machine.apply(1, 1, [schedule([NOW_MS] * count)])
    return np.full(count, NOW_MS // 3_600_000, np.uint32), np.arange(count, dtype=np.uint32)


def test_only_so_many_records_are_read_ahead_at_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_reads, "AHEAD_RECORDS_MAX", 3)
    disk = ColdDisk()
    assert asyncio.run(disk.reads(machine).ahead(*names(machine, 10))) == 3
    assert [len(places.offsets) for places in disk.read] == [3]


def test_only_so_many_bytes_are_read_ahead_at_once_but_one_record(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour, index = names(machine, 10)
    (size,) = set(machine.wheel.units(hour, index)["size"].tolist())
    for bytes_max, count in ((0, 1), (size, 1), (2 * size + 1, 2)):
        monkeypatch.setattr(record_reads, "AHEAD_BYTES_MAX", bytes_max)
        assert asyncio.run(ColdDisk().reads(machine).ahead(hour, index)) == count
    assert asyncio.run(ColdDisk().reads(machine).ahead(hour[:0], index[:0])) == 0


def test_a_caller_that_waits_for_records_gets_them_whatever_is_cached(machine: Machine) -> None:
    hour, index = names(machine, 5)
    reads = ColdDisk().reads(machine)
    with pytest.raises(RecordsNotCached):
        reads.cached(hour, index)
    assert asyncio.run(reads.read(hour, index)) == machine.wheel.read(hour, index) != [None] * 5


def searching(places: list[int]) -> Callable[[Pread | None], str]:
    """Work that reads one place after another."""

    def work(pread: Pread | None) -> str:
        for place in places:
            try:
                (pread or os.pread)(0, 0, place)
            except NotCached:
                raise NotCached([FilePlaces(Path("file"), [place], [0])]) from None
            except OSError:
                pass
        return "done"

    return work


def test_work_begins_again_until_all_of_its_places_were_read(machine: Machine) -> None:
    disk = ColdDisk()
    assert asyncio.run(disk.reads(machine).read_ahead_for(searching([7, 8, 9, 7]))) == "done"
    assert [places.offsets for places in disk.read] == [[7], [8], [9]]


def test_a_place_that_never_is_cached_is_read_ahead_once_and_then_waited_for(machine: Machine) -> None:
    """A bad sector takes the disk seconds each time, and others wait for the thread."""
    disk = ColdDisk()
    disk.there = _Nothing()
    assert asyncio.run(disk.reads(machine).read_ahead_for(searching([7]))) == "done"
    assert len(disk.read) == 1


def test_work_that_always_lacks_something_else_waits_for_the_disk_in_the_end(machine: Machine) -> None:
    disk = ColdDisk()
    assert asyncio.run(disk.reads(machine).read_ahead_for(searching([*range(999)]))) == "done"
    assert len(disk.read) == ATTEMPTS_MAX


class _Nothing(set[int]):
    def __contains__(self, _: object) -> bool:
        return False
