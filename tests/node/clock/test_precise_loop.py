"""The node's event loop: its timers come in order and not early, and waiting costs no turns."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from tarry.node.clock import precise_loop


def run(play: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=precise_loop.new) as runner:
        runner.run(play)


def test_timers_come_in_order_and_not_early() -> None:
    async def play() -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        came: list[tuple[float, float]] = []
        begun_s = loop.time()
        for delay_s in (0.003, 0.0002, 0.0015):
            loop.call_later(delay_s, lambda d=delay_s: came.append((d, loop.time() - begun_s)))
        loop.call_later(0.004, done.set_result, None)
        await done
        assert [delay_s for delay_s, _ in came] == [0.0002, 0.0015, 0.003]
        assert all(after_s >= delay_s for delay_s, after_s in came)

    run(play())


def test_a_timer_that_was_set_wakes_nobody_once_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has gone off is read, so that waiting for a file afterwards is one turn and not many."""

    async def play() -> None:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(0.0005, lambda: None)
        reading, writing = os.pipe()
        arrived = asyncio.Event()
        loop.add_reader(reading, arrived.set)
        loop.call_soon(timer.cancel)
        await asyncio.sleep(0.002)
        turns = 0
        select = loop._selector.select  # type: ignore[attr-defined]

        def counted(timeout: float | None = None) -> Any:
            nonlocal turns
            turns += 1
            return select(timeout)

        monkeypatch.setattr(loop._selector, "select", counted)  # type: ignore[attr-defined]
        in_thread = loop.run_in_executor(None, lambda: os.write(writing, b"x"))
        await arrived.wait()
        loop.remove_reader(reading)
        await in_thread
        assert turns < 20
        os.close(reading)
        os.close(writing)

    run(play())


def test_it_leaves_no_file_open() -> None:
    async def nothing() -> None:
        await asyncio.sleep(0)

    run(nothing())
    gc.collect()  # what other tests left is not to go in between
    before = len(list(Path("/proc/self/fd").iterdir()))
    run(nothing())
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
