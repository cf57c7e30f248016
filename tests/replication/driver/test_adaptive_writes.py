"""Where the journal's writes run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from tarry.replication.blocking import in_own_thread, in_thread
from tarry.replication.driver.adaptive_writes import PAUSE_S_MIN, QUICK_S, STALL_S, WRITES, AdaptiveWrites
from tests.simulation.virtual_loop import VirtualLoop, run


class Disk:
    """Says on which thread it wrote; writing takes as long as it is told, by a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.adaptive = AdaptiveWrites(in_thread, lambda: self.now)

    def write(self, took_s: float) -> Callable[[], bool]:
        def work() -> bool:
            self.now += took_s
            return threading.current_thread() is threading.main_thread()

        return work


async def test_a_quick_disk_is_written_on_the_loop_once_that_is_known() -> None:
    disk = Disk()
    on_loop = [await disk.adaptive(disk.write(QUICK_S / 4)) for _ in range(WRITES + 2)]
    assert on_loop == [False] * WRITES + [True] * 2


async def test_a_long_write_goes_to_the_same_thread_and_says_nothing_of_the_disk() -> None:
    disk = Disk()
    assert await quiet(disk, 0.0)
    assert not await disk.adaptive.long(disk.write(STALL_S))
    assert disk.adaptive.quick
    threads: list[str] = []
    disk.adaptive = AdaptiveWrites(in_own_thread("journal"), lambda: disk.now)
    for write in (disk.adaptive, disk.adaptive.long):
        await write(lambda: threads.append(threading.current_thread().name))
    assert threads == ["journal_0", "journal_0"]


async def test_one_slow_write_is_enough_to_go_to_a_thread_for_a_while() -> None:
    disk = Disk()
    for _ in range(WRITES + 1):
        await disk.adaptive(disk.write(0.0))
    assert await disk.adaptive(disk.write(QUICK_S))  # nobody could know
    on_loop = [await disk.adaptive(disk.write(0.0)) for _ in range(WRITES + 1)]
    assert on_loop == [False] * WRITES + [True]


async def quiet(disk: Disk, seconds: float) -> bool:
    """Let time pass, and a few quick writes; return whether the last one was on the loop."""
    disk.now += seconds
    return [await disk.adaptive(disk.write(0.0)) for _ in range(WRITES + 1)][-1]


async def test_a_stall_is_remembered_for_30_s_however_many_writes_there_are() -> None:
    disk = Disk()
    assert await quiet(disk, 0.0)
    assert await disk.adaptive(disk.write(STALL_S))
    assert not await quiet(disk, PAUSE_S_MIN - 0.001)
    assert await quiet(disk, 0.002)


async def pause_after_stall(disk: Disk) -> int:
    """Stall; return for how many seconds nothing is written on the loop then."""
    await disk.adaptive(disk.write(2 * STALL_S))
    seconds = 0
    while not await quiet(disk, 1.0):
        seconds += 1
    return seconds + 1


async def test_stalls_that_come_again_are_remembered_for_longer_and_forgotten_in_time() -> None:
    disk = Disk()
    await quiet(disk, 0.0)
    pauses = [await pause_after_stall(disk) for _ in range(5)]
    assert pauses == [30, 60, 120, 240, 240]
    assert await quiet(disk, 240 + 120 + 60)
    assert [await pause_after_stall(disk) for _ in range(2)] == [30, 60]


async def test_a_stall_in_a_thread_prolongs_the_pause() -> None:
    disk = Disk()
    await quiet(disk, 0.0)
    await disk.adaptive(disk.write(STALL_S))
    disk.now += PAUSE_S_MIN - 1
    assert not await disk.adaptive(disk.write(2 * STALL_S))
    assert not await quiet(disk, 2 * PAUSE_S_MIN - 1)
    assert await quiet(disk, 2)


def leases_lost(stall_every_s: float, minutes: int) -> int:
    """Of a leader that writes each 10 ms to a disk that stalls for longer than its lease."""
    lost = 0

    async def play() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        stalls_at_s = loop.now + stall_every_s

        def work() -> None:
            nonlocal stalls_at_s
            stalls = loop.now >= stalls_at_s
            stalls_at_s += stall_every_s if stalls else 0
            loop.now += 0.3 if stalls else 0.0002

        async def beside(work: Callable[[], None], /) -> None:
            """A thread: what it takes passes for the loop as well, which may do other things meanwhile."""
            began = loop.now
            work()
            took, loop.now = loop.now - began, began
            await asyncio.sleep(took)

        async def beat() -> None:
            nonlocal lost
            last = loop.now
            while True:
                await asyncio.sleep(0.05)
                lost += loop.now - last > 0.285
                last = loop.now

        beats = asyncio.create_task(beat())
        disk = AdaptiveWrites(beside, lambda: loop.now)
        for _ in range(minutes * 6_000):
            await disk(work)
            await asyncio.sleep(0.01)
        beats.cancel()

    run(play())
    return lost


def test_a_disk_that_stalls_every_few_seconds_costs_one_lease_and_not_each_time() -> None:
    assert leases_lost(stall_every_s=5, minutes=5) == 1


async def test_a_write_of_just_the_limit_is_not_quick() -> None:
    disk = Disk()
    for _ in range(2 * WRITES):
        assert not await disk.adaptive(disk.write(QUICK_S))


async def test_what_a_write_raises_is_raised_on_the_loop_and_in_a_thread() -> None:
    disk = Disk()

    def fail() -> None:
        raise OSError("no")

    for _ in range(WRITES + 2):
        with pytest.raises(OSError, match="no"):
            await disk.adaptive(fail)
