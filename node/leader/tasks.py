"""Tasks that run beside a leadership, and no longer than it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tarry.replication.errors import NotLeader, Unknown
from tarry.replication.state_machine.ready_queue import UnitsDamaged


class LeaderTasks:
    """The tasks of one leadership."""

    def __init__(self, lost: Callable[[], None], damaged: Callable[[UnitsDamaged], object]) -> None:
        """Take `lost`, called where a task finds that the node leads no longer; `damaged`: that a queue is.

        Needs a running event loop.
        """
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Raises what a task raised unexpectedly; never returns otherwise."""
        self._lost = lost
        self._damaged = damaged
        self._running: dict[asyncio.Task[None], None] = {}  # in the order of their making
        self._ended = False

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this until it ends or the leadership does; not at all where that is over.

        It is the task's own coroutine, for one that is cancelled before its first turn is closed with it.
        """
        if self._ended:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._running[task] = None
        task.add_done_callback(self._done)

    def end(self) -> None:
        """Cancel them all; later ones are not run."""
        self._ended = True
        for task in list(self._running):
            task.cancel()

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        error = None if task.cancelled() else task.exception()
        if isinstance(error, NotLeader | Unknown):
            self._lost()
        elif error is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """End the leadership with an error, of whatever; and the node, unless the damage may be mended."""
        if isinstance(error, UnitsDamaged):
            self._damaged(error)
        elif not self.failed.done():
            self.failed.set_exception(error)
