"""Blocking work leaves the event loop; what must not wait has a thread that nothing else takes."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from tarry.replication.blocking import in_own_thread, in_thread

PATIENCE_S = 60


async def test_work_with_a_thread_of_its_own_waits_for_no_other() -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    begun, goes_on = threading.Event(), threading.Event()

    def long() -> str:
        begun.set()
        goes_on.wait()
        return "long"

    own = in_own_thread("journal")
    background = asyncio.ensure_future(in_thread(long))
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert await own(lambda: begun.wait(PATIENCE_S))
            first, second = await own(threading.get_ident), await own(threading.get_ident)
        assert first == second
        assert not background.done()
    finally:
        goes_on.set()
    assert await background == "long"
