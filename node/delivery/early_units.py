"""Messages that are due before others ahead of them in a queue.

A crowded second is released seconds before it is due. What is scheduled meanwhile, and due before it, is
released behind it. A feed whose window is full therefore looks on, at each unit once:

        window             beyond it
    │▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒│▒▒▒▒▒▒▒▒▒▒●▒▒▒▒●▒▒▒▒▒│· · · ·
                               └────┴─ due before some that are ahead of them: wait with the window
                                          └ end of what has been looked at

What is not early is beyond the window in the order of due times. So what is due by the latest of the window
may go out, and what is early and due after that waits until the window has come further.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

LOOK_ON_UNITS_MAX: Final = 1 << 21
"""Units beyond the window that are looked at: 64 MiB, and more than are released ahead."""

EARLY_MAX: Final = 8_192
"""Early messages that wait beside a window."""


class EarlyUnits:
    """Search of one feed for early units behind its window."""

    __slots__ = ("_latest_ms", "end", "window_ms")

    def __init__(self) -> None:
        self.end = 0
        """Offsets below have been looked at, unless they were loaded."""
        self.window_ms = 0
        """Latest due time of what the window has had."""
        self._latest_ms = 0  # of what has been looked at as well

    def note_window(self, due_ms: NDArray[np.int64]) -> None:
        """Note the next units that the window takes in, due times of shape (n,)."""
        self.window_ms = int(due_ms.max(initial=self.window_ms))
        self._latest_ms = max(self._latest_ms, self.window_ms)

    def begin(self, window_end: int) -> int:
        """Return the offset to look on from: behind the window, and what has been looked at."""
        return max(self.end, window_end)

    def left(self, window_end: int, units: int) -> int:
        """Return how many of a queue's units are to be looked at from there on."""
        return min(units, window_end + LOOK_ON_UNITS_MAX) - self.begin(window_end)

    def find(self, begin: int, due_ms: NDArray[np.int64], most: int) -> NDArray[np.uint64]:
        """Look at units from ``begin`` on, due times of shape (n,): return the offsets of the early ones.

        It ends before the first of them that is beyond ``most``.
        """
        latest_ms = np.maximum.accumulate(np.concatenate([[self._latest_ms], due_ms]))
        (early,) = np.nonzero(due_ms < latest_ms[:-1])
        count = int(early[most]) if len(early) > most else len(due_ms)
        self.end, self._latest_ms = begin + count, int(latest_ms[count])
        offsets: NDArray[np.uint64] = (early[:most] + begin).astype(np.uint64)
        return offsets
