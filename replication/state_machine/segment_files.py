"""Files kept open because they are used again soon: a bounded number, the least lately used closed."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final

OPEN_MAX: Final = 256
"""Half of what a process may open where the limit is the usual 1,024 goes to sockets and the wheel."""


class OpenFiles:
    """Descriptors of the segments of all queues, by (queue, segment)."""

    def __init__(self, open_max: int = OPEN_MAX) -> None:
        self._open_max = open_max
        self._fds: OrderedDict[tuple[int, int], int] = OrderedDict()

    def fd(self, queue: int, segment: int, path: Callable[[int], Path]) -> int:
        """Return a descriptor of the segment's file, made where it is missing; good until the next call.

        Raises OSError.
        """
        key = queue, segment
        fd = self._fds.get(key)
        if fd is not None:
            self._fds.move_to_end(key)
            return fd
        if len(self._fds) >= self._open_max:
            os.close(self._fds.popitem(last=False)[1])
        fd = self._fds[key] = open_segment(path(segment))
        return fd

    def close(self, queue: int, segment: int | None = None) -> None:
        """Close a queue's files, or one of them."""
        for key in [key for key in self._fds if key[0] == queue and segment in (None, key[1])]:
            os.close(self._fds.pop(key))

    def close_all(self) -> None:
        """Close all files of all queues."""
        while self._fds:
            os.close(self._fds.popitem()[1])


def open_segment(path: Path) -> int:
    """Return a descriptor of the file, made with its folder where it is missing. Raises OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o644)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags, 0o644)
