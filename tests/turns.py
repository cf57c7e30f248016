"""What one turn of an event loop costs, in CPU time: for tests that hold requests to a bound.

CPU time of the loop's own thread, the least of several tries: other work on the machine does not count.
A machine slower than the one of the bounds is allowed as much more as it takes for a fixed piece
of work.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from tarry.node import precise_loop
from tarry.replication.holds import BOUND_S, Hold, Holds

TRIES: Final = 3
REFERENCE_S: Final = 0.010
"""CPU time of the fixed piece of work on the machine that the bounds were set on."""


def cpu_s(work: Callable[[], object]) -> float:
    """Return the CPU time that the work takes at least."""
    least_s = float("inf")
    for _ in range(TRIES):
        gc.collect()
        began_s = time.thread_time()
        work()
        least_s = min(least_s, time.thread_time() - began_s)
    return least_s


def bound_s(bound_s: float = BOUND_S) -> float:
    """Return what is allowed on this machine."""
    return bound_s * max(1.0, cpu_s(_fixed) / REFERENCE_S)


def busiest(play: Callable[[Holds], Coroutine[Any, Any, None]]) -> Hold:
    """Return the turn of a play that took most CPU time, of the best of several tries.

    A play forgets what its own preparations held (``Holds.forget``).
    """
    return min((_played(play).busiest for _ in range(TRIES)), key=lambda hold: hold.cpu_s)


def _played(play: Callable[[Holds], Coroutine[Any, Any, None]]) -> Holds:
    holds = Holds()
    gc.collect()
    with asyncio.Runner(loop_factory=partial(precise_loop.new, holds)) as runner:
        runner.run(play(holds))
    return holds


def _fixed() -> None:
    total = 0
    for number in range(360_000):
        total += number & 7
