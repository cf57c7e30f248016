"""The loop in a thread of its own: whoever waits for it is told of its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import pytest

from tarry.client.blocking.loop_thread import LoopThread
from tarry.client.blocking.twin import iterating
from tarry.client.cluster.forks import Process
from tarry.client.errors import Closed

PATIENCE_S = 20


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[BaseException]]:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - whatever it is
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, raised


def test_whoever_waits_as_it_is_stopped_is_told_that_the_client_is_closed() -> None:
    loop, waits = LoopThread(), threading.Event()

    async def work() -> None:
        waits.set()
        await asyncio.Event().wait()

    thread, raised = in_thread(lambda: loop.run(work()))
    assert waits.wait(PATIENCE_S)
    loop.stop()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert [type(error) for error in raised] == [Closed]


def test_each_call_behind_the_stop_is_refused_and_none_is_kept() -> None:
    loop = LoopThread()
    loop.run(asyncio.sleep(0))
    loop.stop()
    for _ in range(3):
        with pytest.raises(Closed):
            loop.soon(lambda: None)
    assert not loop._soon
    with pytest.raises(Closed):
        loop.run(asyncio.sleep(0))


def test_behind_a_fork_a_call_is_refused_instead_of_waiting_for_a_thread_that_is_not_there() -> None:
    loop = LoopThread()
    loop.run(asyncio.sleep(0))
    process, loop._process = loop._process, -1  # as in the child
    with pytest.raises(RuntimeError, match="fork"):
        loop.run(asyncio.sleep(0))
    loop._woken = True  # the fork came in a burst
    with pytest.raises(RuntimeError, match="fork"):
        loop.soon(lambda: None)
    assert not loop._soon
    loop._process, loop._woken = process, False
    loop.stop()


def test_an_interrupted_iteration_ends_once_its_work_under_way_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, waits, ended = LoopThread(), threading.Event(), list[str]()

    class Twin:
        async def parts(self) -> AsyncGenerator[int]:
            try:
                waits.set()
                await asyncio.Event().wait()
                yield 1
            finally:
                await asyncio.sleep(0.05)  # what it has opened is closed by and by
                ended.append("parts")

    class Blocking:
        _twin, _thread = Twin(), loop
        parts: Callable[..., Iterator[int]] = iterating(Twin.parts)

    run = loop.run

    def interrupted(work: Any) -> Any:
        monkeypatch.setattr(loop, "run", run)
        future = asyncio.run_coroutine_threadsafe(work, loop._running())
        assert waits.wait(PATIENCE_S)
        future.cancel()
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(iter(Blocking().parts()))
    assert ended == ["parts"]
    loop.stop()


def test_behind_a_fork_a_call_is_refused_though_a_thread_that_is_not_there_holds_the_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = LoopThread()
    loop.run(asyncio.sleep(0))
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with loop._submitting:
            held.set()
            done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(10)
    with monkeypatch.context() as forked:
        forked.setattr(Process, "id", -1)
        for call in (lambda: loop.run(asyncio.sleep(0)), loop.stop):
            with pytest.raises(RuntimeError, match="forked"):
                call()
    done.set()
    holder.join()
    loop.stop()
