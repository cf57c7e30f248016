"""Where the journal's writes run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from tarry.replication.blocking import in_own_thread, in_thread
from tarry.replication.driver.adaptive_writes import (
    PAUSE_S_MIN,
    QUICK_S,
    SMALL_BYTES_MAX,
    SMALL_QUICK_S,
    STALL_S,
    WRITES,
    AdaptiveWrites,
)
from tests.simulation.virtual_loop import VirtualLoop, run


async def written(
    writes: AdaptiveWrites, work: Callable[[], object], size_bytes: int = SMALL_BYTES_MAX
) -> object:
    return writes.at_once(work) if writes.quick(size_bytes) else await writes(work)


class Disk:
    """Says on which thread it wrote; writing takes as long as it is told, by a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.adaptive = AdaptiveWrites(in_thread, lambda: self.now)

    async def __call__(self, took_s: float, size_bytes: int = SMALL_BYTES_MAX) -> bool:
        """Write as the driver does; return whether it was on the loop."""
        return bool(await written(self.adaptive, self.write(took_s), size_bytes))

    def write(self, took_s: float) -> Callable[[], bool]:
        def work() -> bool:
            self.now += took_s
            return threading.current_thread() is threading.main_thread()

        return work


async def test_a_quick_disk_is_written_on_the_loop_once_that_is_known() -> None:
    for size_bytes, quick_s in ((SMALL_BYTES_MAX, SMALL_QUICK_S), (SMALL_BYTES_MAX + 1, QUICK_S)):
        disk = Disk()
        on_loop = [await disk(0.9 * quick_s, size_bytes) for _ in range(WRITES + 2)]
        assert on_loop == [False] * WRITES + [True] * 2


async def test_a_long_write_goes_to_the_same_thread_and_says_nothing_of_the_disk() -> None:
    disk = Disk()
    assert await quiet(disk, 0.0)
    assert not await disk.adaptive.long(disk.write(STALL_S))
    assert disk.adaptive.quick(SMALL_BYTES_MAX + 1)
    threads: list[str] = []
    disk.adaptive = AdaptiveWrites(in_own_thread("journal"), lambda: disk.now)
    for write in (disk.adaptive, disk.adaptive.long, disk.adaptive.large):
        await write(lambda: threads.append(threading.current_thread().name))
    assert threads == ["journal_0"] * 3


async def test_a_large_write_is_in_the_durations_and_says_nothing_of_small_ones() -> None:
    disk = Disk()
    assert await quiet(disk, 0.0)
    before = sum(disk.adaptive.durations.counts)
    assert not await disk.adaptive.large(disk.write(STALL_S))
    assert sum(disk.adaptive.durations.counts) == before + 1
    assert disk.adaptive.quick(SMALL_BYTES_MAX + 1)


async def test_one_slow_write_is_enough_to_go_to_a_thread_for_a_while() -> None:
    disk = Disk()
    for _ in range(WRITES + 1):
        await disk(0.0)
    assert await disk(SMALL_QUICK_S)  # nobody could know
    assert [await disk(0.0) for _ in range(WRITES + 1)] == [False] * WRITES + [True]
    assert await disk(QUICK_S)
    assert await disk(0.0)
    of_more = [await disk(0.0, SMALL_BYTES_MAX + 1) for _ in range(WRITES)]
    assert of_more == [False] * (WRITES - 1) + [True]


async def quiet(disk: Disk, seconds: float) -> bool:
    """Let time pass, and a few quick writes; return whether the last one was on the loop."""
    disk.now += seconds
    return [await disk(0.0) for _ in range(WRITES + 1)][-1]


async def test_a_stall_is_remembered_for_30_s_however_many_writes_there_are() -> None:
    disk = Disk()
    assert await quiet(disk, 0.0)
    assert await disk(STALL_S)
    assert not await quiet(disk, PAUSE_S_MIN - 0.001)
    assert await quiet(disk, 0.002)


async def pause_after_stall(disk: Disk) -> int:
    """Stall; return for how many seconds nothing is written on the loop then."""
    await disk(2 * STALL_S)
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


async def test_a_stall_in_a_thread_prolongs_the_pause_to_the_shortest() -> None:
    disk = Disk()
    await quiet(disk, 0.0)
    await disk(STALL_S)
    for _ in range(3):
        disk.now += PAUSE_S_MIN - 1
        assert not await disk(2 * STALL_S)
    assert not await quiet(disk, PAUSE_S_MIN - 1)
    assert await quiet(disk, 2)


async def test_a_stall_in_a_thread_alone_is_not_remembered() -> None:
    """A thread that waits for the interpreter's lock seems to stall."""
    disk = Disk()
    assert not await disk(2 * STALL_S)
    assert await quiet(disk, 0.0)


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
            await written(disk, work)
            await asyncio.sleep(0.01)
        beats.cancel()

    run(play())
    return lost


def test_a_disk_that_stalls_every_few_seconds_costs_one_lease_and_not_each_time() -> None:
    assert leases_lost(stall_every_s=5, minutes=5) == 1


async def test_a_write_of_just_the_limit_is_not_quick() -> None:
    disk = Disk()
    for _ in range(2 * WRITES):
        assert not await disk(SMALL_QUICK_S)


async def test_what_a_write_raises_is_raised_on_the_loop_and_in_a_thread() -> None:
    disk = Disk()

    def fail() -> None:
        raise OSError("no")

    for _ in range(WRITES + 2):
        with pytest.raises(OSError, match="no"):
            await written(disk.adaptive, fail)
