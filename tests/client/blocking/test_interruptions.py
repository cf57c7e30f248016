"""A signal's handler may use the client wherever it has interrupted the thread that uses it, too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import FrameType

from tarry.client.blocking.consumer import _Ready
from tarry.client.blocking.loop_thread import LoopThread
from tarry.client.blocking.producer import _Room
from tests.client.consumers.test_buffer import batch
from tests.step import Step

INTERRUPTED = ("tarry.client.blocking", "threading", "concurrent.futures", "queue")


def at_every_line(work: Callable[[], object], handler: Callable[[], object]) -> int:
    """Call the handler, as a signal would, before each line in turn that the work comes to; count them."""
    lines = 0
    while True:
        step = Step(lines, handler, is_interrupted)
        with step.meanwhile():
            work()
        if not step.done:
            return lines
        lines += 1


def is_interrupted(frame: FrameType) -> bool:
    return str(frame.f_globals["__name__"]).startswith(INTERRUPTED)


def test_a_call_that_is_interrupted_anywhere_by_another_one_ends_as_that_does() -> None:
    loop, calls = LoopThread(), list[str]()
    loop.run(asyncio.sleep(0))

    async def handled() -> None:
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def answer() -> None:  # as an on_done does that schedules another one
            loop.soon(lambda: answered.set_result(None))

        asyncio.get_running_loop().call_soon(answer)
        await answered
        calls.append("handled")

    async def work() -> None:
        calls.append("worked")

    lines = at_every_line(lambda: loop.run(work()), lambda: loop.run(handled()))
    assert lines > 10
    assert (calls.count("handled"), calls.count("worked")) == (lines, lines + 1)
    loop.stop()


def test_a_place_that_is_waited_for_can_be_given_back_by_the_loop_meanwhile() -> None:
    loop, room = LoopThread(), _Room(2)
    loop.run(asyncio.sleep(0))

    async def give_back() -> None:
        room.release()
        assert room.acquire(blocking=False)

    def work() -> None:
        assert room.acquire(blocking=True)
        room.release()

    assert at_every_line(work, lambda: loop.run(give_back())) >= 4
    assert [room.acquire(blocking=False) for _ in range(3)] == [True, True, False]
    loop.stop()


def test_the_loop_extends_what_waits_wherever_a_handler_waits_for_it() -> None:
    loop, ready = LoopThread(), _Ready()
    loop.run(asyncio.sleep(0))
    taken = list[int]()

    async def renew() -> None:
        ready.put(batch(range(1, 2), 5.0))
        for _, offsets in ready.renew(6.0, 7.0):
            assert offsets
        assert sum(len(offsets) for _, offsets in ready.waiting()) > 0

    def work() -> None:
        ready.put(batch(range(2, 3), 5.0))
        while (message := ready.message(0.0)) is not None:
            taken.append(message.offset)

    lines = at_every_line(work, lambda: loop.run(renew()))
    assert lines >= 4
    assert (taken.count(1), taken.count(2)) == (lines, lines + 1)
    loop.stop()
