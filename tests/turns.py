"""What one turn of an event loop costs, in CPU time: for tests that hold requests to a bound.

CPU time of the loop's own thread, the least of several tries: other work on the machine does not count.
A machine slower than the one of the bounds is allowed as much more as it takes for a fixed piece
of work. Other processes on the same processor still take its caches and memory from a turn, so the tests
allow a multiple of the bound: what they refuse is work without one. `make turns` runs them alone with less.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Generic, TypeVar

from tarry.node.clock import precise_loop
from tarry.replication.loop_holds import BOUND_S, Hold, Holds

T = TypeVar("T")

TRIES: Final = 4
TOLERANCE: Final = float(os.environ.get("TURN_TOLERANCE", "3"))
"""Multiple of each bound that is allowed."""
REFERENCE_S: Final = 0.010
"""CPU time of the fixed piece of work on the machine that the bounds were set on."""


def freeze() -> None:
    """Let garbage collections from now on look only at what is made from now on."""
    gc.collect()
    gc.freeze()


def tries() -> Iterator[int]:
    """Yield the number of each try; its garbage collections look only at what it makes."""
    for attempt in range(TRIES):
        freeze()
        yield attempt


def cpu_s(work: Callable[[], object]) -> float:
    """Return the CPU time that the work takes at least."""
    return min(once_s(work) for _ in tries())


def once_s(work: Callable[[], object]) -> float:
    """Return the CPU time that the work takes this time."""
    began_s = time.thread_time()
    work()
    return time.thread_time() - began_s


def bound_s(bound_s: float = BOUND_S) -> float:
    """Return what is allowed on this machine, as busy as it is now."""
    return TOLERANCE * bound_s * max(1.0, min(once_s(_fixed) for _ in range(TRIES)) / REFERENCE_S)


class Timed(Generic[T]):
    """Steps that subjects in equal states take, and the CPU time of the longest of each name."""

    def __init__(self, subjects: Sequence[T]) -> None:
        self._subjects = subjects
        self._longest_s: dict[str, float] = {}
        freeze()

    def each(self, name: str, work: Callable[[T], object]) -> None:
        """Let each subject take the step; it counts as what it takes least."""
        took_s = min(once_s(partial(work, subject)) for subject in self._subjects)
        self._longest_s[name] = max(took_s, self._longest_s.get(name, 0.0))

    def too_long(self) -> dict[str, float]:
        """Return the steps that take more than a turn may."""
        allowed_s = bound_s()
        return {name: took_s for name, took_s in self._longest_s.items() if took_s > allowed_s}


class Steps:
    """What a play does, step by step: the turn of each that took most CPU time."""

    def __init__(self, holds: Holds) -> None:
        self.busiest: dict[str, Hold] = {}
        self._holds = holds

    @asynccontextmanager
    async def step(self, name: str) -> AsyncIterator[None]:
        """Measure what is done within; what it begins is to be over at its end."""
        await asyncio.sleep(0)
        self._holds.forget()
        await asyncio.sleep(0)
        yield
        await asyncio.sleep(0)
        self.busiest[name] = self._holds.busiest


Play = Callable[[Steps, Holds], Coroutine[Any, Any, None]]


def too_long(play: Play) -> dict[str, Hold]:
    """Return the steps of a play in which a turn takes too long, however often it is tried."""
    long: dict[str, Hold] = {}
    for _ in range(TRIES):
        held = busiest(play)
        allowed_s = bound_s()
        long = {name: hold for name, hold in held.items() if hold.cpu_s > allowed_s}
        if not long:
            break
    return long


def busiest(play: Play) -> dict[str, Hold]:
    """Return the turn of each step that took most CPU time."""
    holds = Holds()
    steps = Steps(holds)
    freeze()
    with asyncio.Runner(loop_factory=partial(precise_loop.new, holds)) as runner:
        runner.run(play(steps, holds))
    return steps.busiest


def _fixed() -> None:
    total = 0
    for number in range(360_000):
        total += number & 7
