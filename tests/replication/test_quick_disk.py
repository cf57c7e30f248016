"""Where the journal's writes run."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tarry.replication.core import in_thread
from tarry.replication.quick_disk import QUICK_S, WRITES, QuickDisk


class Disk:
    """Says on which thread it wrote; writing takes as long as it is told, by a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.quick_disk = QuickDisk(in_thread, lambda: self.now)

    def write(self, took_s: float) -> Callable[[], bool]:
        def work() -> bool:
            self.now += took_s
            return threading.current_thread() is threading.main_thread()

        return work


async def test_a_quick_disk_is_written_on_the_loop_once_that_is_known() -> None:
    disk = Disk()
    on_loop = [await disk.quick_disk(disk.write(QUICK_S / 4)) for _ in range(WRITES + 2)]
    assert on_loop == [False] * WRITES + [True] * 2


async def test_one_slow_write_is_enough_to_go_to_a_thread_for_a_while() -> None:
    disk = Disk()
    for _ in range(WRITES + 1):
        await disk.quick_disk(disk.write(0.0))
    assert await disk.quick_disk(disk.write(1.0))  # nobody could know
    on_loop = [await disk.quick_disk(disk.write(0.0)) for _ in range(WRITES + 1)]
    assert on_loop == [False] * WRITES + [True]


async def test_a_write_of_just_the_limit_is_not_quick() -> None:
    disk = Disk()
    for _ in range(2 * WRITES):
        assert not await disk.quick_disk(disk.write(QUICK_S))


async def test_what_a_write_raises_is_raised_on_the_loop_and_in_a_thread() -> None:
    disk = Disk()

    def fail() -> None:
        raise OSError("no")

    for _ in range(WRITES + 2):
        with pytest.raises(OSError, match="no"):
            await disk.quick_disk(fail)
