"""The tasks of a leadership end with it, and what they run into ends it."""

from __future__ import annotations

import asyncio
import gc
import inspect

import pytest

from tarry.node.leader.tasks import LeaderTasks
from tarry.replication.errors import NotLeader, Unknown


@pytest.mark.parametrize("comes", ["in the turn of the end", "after the end"])
async def test_work_that_is_not_begun_at_the_end_of_the_leadership_is_closed_without_a_warning(
    recwarn: pytest.WarningsRecorder, comes: str
) -> None:
    """A nack, say, of a stream that has not ended yet: it is not for the node's next leadership."""
    done: list[str] = []

    async def work() -> None:
        done.append("begun")

    tasks = LeaderTasks(lambda: None, lambda _: None)
    nack = work()
    if comes == "after the end":
        tasks.end()
        tasks.spawn(nack)
    else:
        tasks.spawn(nack)
        tasks.end()
    await asyncio.sleep(0)
    assert inspect.getcoroutinestate(nack) == inspect.CORO_CLOSED
    del nack
    gc.collect()
    assert done == []
    assert [str(each.message) for each in recwarn] == []


async def test_work_under_way_is_cancelled_at_the_end_and_fails_nothing() -> None:
    tasks = LeaderTasks(lambda: None, lambda _: None)
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    tasks.spawn(work())
    await begun.wait()
    tasks.end()
    await cancelled.wait()
    await asyncio.sleep(0)
    assert not tasks.failed.done()


@pytest.mark.parametrize("error", [NotLeader(None), Unknown()])
async def test_work_that_finds_leadership_lost_says_so(error: Exception) -> None:
    lost = asyncio.Event()
    tasks = LeaderTasks(lost.set, lambda _: None)

    async def work() -> None:
        raise error

    tasks.spawn(work())
    await lost.wait()
    assert not tasks.failed.done()


async def test_work_that_fails_unexpectedly_ends_the_leadership_with_the_first_error() -> None:
    tasks = LeaderTasks(lambda: None, lambda _: None)

    async def work(text: str) -> None:
        raise ValueError(text)

    tasks.spawn(work("first"))
    tasks.spawn(work("second"))
    with pytest.raises(ValueError, match="first"):
        await tasks.failed
