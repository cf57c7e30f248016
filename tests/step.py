"""A step that comes between two lines of other code, as a thread's or a signal's may."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Step:
    """A step that is taken once so many lines have been run of the code of which ``counts`` is true."""

    def __init__(self, lines: int, work: Callable[[], object], counts: Callable[[FrameType], bool]) -> None:
        self.done = False
        self._left, self._work, self._counts = lines, work, counts

    @contextmanager
    def meanwhile(self) -> Iterator[None]:
        """Take it in what is run within the block."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if self.done or not self._counts(frame):
            return None
        if event in ("line", "return"):
            self._left -= 1
            if self._left < 0:
                self.done = True
                self._work()
        return self._trace
