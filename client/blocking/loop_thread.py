"""An event loop in a thread of its own, for programs that have none."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from tarry.client.cluster.forks import FORKED, Process
from tarry.client.errors import Closed

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads. A daemon: it keeps no process up."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process: int | None = None
        """In which the thread runs: a fork does not have it."""
        self._submitting = threading.RLock()
        self._soon: deque[Callable[[], object]] = deque()
        self._woken = False
        self._stopped = False

    @property
    def inside(self) -> bool:
        """True if the caller runs in the loop's own thread, which must not wait for itself."""
        return self._thread is threading.current_thread()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what the coroutine returns; raises what it raises.

        An interrupt (Ctrl-C) cancels it. Raises RuntimeError in the loop's own
        thread, that is in a callback: it would wait for itself.
        """
        waits = _Waits(work)
        try:
            if self.inside:
                raise RuntimeError("a callback runs on the client's event loop and must not wait for it")
            self.check_process()  # first: at the fork another thread may have held the lock
            with self._submitting:  # what the loop has been given before it is told to end, it ends
                loop = self._running()
                loop.call_soon_threadsafe(waits.begin)
        except (RuntimeError, Closed):
            work.close()
            raise
        try:
            return waits.result()
        except asyncio.CancelledError:
            if self._stopped:
                raise Closed("client") from None
            raise CancelledError from None
        except BaseException:
            with suppress(RuntimeError):  # the loop has ended, and with it the work
                loop.call_soon_threadsafe(waits.cancel)  # of no effect where the work itself ended so
            raise

    def soon(self, call: Callable[[], object]) -> None:
        """Have the loop call this soon, in order; a burst wakes it once."""
        self._soon.append(call)
        if self._woken and self._process == Process.id:  # a fork in a burst has no thread that is awake
            return
        self._woken = True
        try:
            self.check_process()  # first: at the fork another thread may have held the lock
            # not asked for in the loop itself: a thread that holds the lock may wait for the loop
            loop = self._loop if self.inside and self._loop is not None else self._running()
            loop.call_soon_threadsafe(self.drain)
        except (RuntimeError, Closed):
            self._woken = False
            self._soon.clear()  # nobody comes for them any more
            raise

    def soon_in_context(self, call: Callable[[], object]) -> None:
        """Have the loop call this soon, with the caller's context variables: ``soon`` has any caller's."""
        self.soon(partial(copy_context().run, call))

    def stop(self) -> None:
        """End the loop and its thread, and with Closed whoever waits for it. May be called twice."""
        self.check_process()
        with self._submitting:
            self._stopped = True
            loop, thread = self._loop, self._thread
        if loop is not None and thread is not None and thread.is_alive():
            loop.call_soon_threadsafe(loop.stop)
            if not self.inside:
                thread.join()

    def drain(self) -> None:
        """Call what ``soon`` was given and the loop has not come to yet. In the loop's thread only."""
        self._woken = False  # before the calls: what is added from here on wakes again
        for _ in range(len(self._soon)):
            self._soon.popleft()()

    def check_process(self) -> None:
        """Raise RuntimeError in a process that was forked since the loop has begun."""
        if self._process not in (None, Process.id):
            raise RuntimeError(FORKED)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._submitting:
            if self._stopped:
                raise Closed("client")
            self.check_process()
            if self._loop is None:
                self._process = Process.id
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run, args=(self._loop,), name="tarry-client", daemon=True
                )
                self._thread.start()
            return self._loop


class _Waits(Generic[T]):
    """Work that another thread waits for, without a lock: a signal's handler may run, and wait, meanwhile.

    ``concurrent.futures.Future`` has one, which its waiter holds as it begins and ends to wait: the loop
    would wait for it while the handler, in that same thread, waits for the loop.
    """

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._done: SimpleQueue[asyncio.Task[T]] = SimpleQueue()
        self._task: asyncio.Task[T] | None = None

    def begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work)
        self._task.add_done_callback(self._done.put)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def result(self) -> T:
        return self._done.get().result()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
