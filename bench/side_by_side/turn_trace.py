"""Record of a node's turns of its event loop and of their parts, for `profiled`.

A node whose environment names a folder in TURN_TRACE, and that imports this module when it starts, writes
the file PID.npz there when it ends: `spans` of shape (n, 3), begin and end in seconds since the epoch and
CPU seconds in between, in the order of their ends; `cause` of shape (n,), positions in `names`.
"""

from __future__ import annotations

import atexit
import gc
import os
import threading
import time
from array import array
from pathlib import Path
from typing import Any, Final

from tarry.replication.loop_holds import OTHER, Holds

FOLDER: Final = "TURN_TRACE"
SPAN_S_MIN: Final = 0.00005
GARBAGE: Final = "garbage collection"


class Trace:
    """Spans of one process's event loop."""

    def __init__(self) -> None:
        self._spans = array("d")
        self._cause = array("i")
        self._names: dict[str, int] = {}
        self._loop = threading.get_ident()
        self._collecting_s = (0.0, 0.0)

    def add(self, cause: str, began_s: float, began_cpu_s: float) -> None:
        """Note a span that ends now."""
        ended_s, cpu_s = time.monotonic(), time.thread_time()
        if ended_s - began_s >= SPAN_S_MIN:
            self._spans.extend((began_s, ended_s, cpu_s - began_cpu_s))
            self._cause.append(self._names.setdefault(cause, len(self._names)))

    def collected(self, phase: str, _: dict[str, Any]) -> None:
        """Note a garbage collection of any generation; for `gc.callbacks`."""
        if threading.get_ident() == self._loop:
            if phase == "stop":
                self.add(GARBAGE, *self._collecting_s)
            self._collecting_s = time.monotonic(), time.thread_time()

    def write(self, folder: Path) -> None:
        """Write the file, if there is anything in it."""
        import numpy as np

        if self._cause:
            spans = np.array(self._spans).reshape(-1, 3)
            spans[:, :2] += time.time() - time.monotonic()
            names = np.array(list(self._names))
            np.savez(folder / f"{os.getpid()}.npz", spans=spans, cause=np.array(self._cause), names=names)


def install(folder: Path) -> None:
    """Record all turns and parts of this process, and write them to the folder when it ends."""
    trace, leave, end_turn = Trace(), Holds.leave, Holds.end_turn

    def leave_part(holds: Holds, cause: str, before: tuple[float, float, float, float]) -> None:
        leave(holds, cause, before)
        trace.add(cause, before[2], before[3])

    def end(holds: Holds) -> None:
        if holds._began_s >= 0:
            trace.add(OTHER, holds._began_s, holds._began_cpu_s)
        end_turn(holds)

    Holds.leave = leave_part  # type: ignore[method-assign, assignment]
    Holds.end_turn = end  # type: ignore[method-assign, assignment]
    gc.callbacks.append(trace.collected)
    atexit.register(trace.write, folder)


if FOLDER in os.environ:
    install(Path(os.environ[FOLDER]))
