"""The rate at which a cluster releases in a backlog: what it can do, and not what it is asked for.

Noted at each heartbeat, by every node, from what it has applied. Only times count at whose beginning and end
messages were overdue.
"""

from __future__ import annotations

from collections import deque
from typing import Final

DEFAULT_PER_S: Final = 100_000.0
"""Assumed where no backlog has been seen."""
BACKLOG_MS: Final = 100
"""A first message that is overdue for so long is a backlog."""
WINDOW_MS: Final = 200
"""A time counts once it is so long; several heartbeats, so that slices do not matter."""
WINDOW_MS_MAX: Final = 2_000
"""One that is longer does not count: heartbeats stayed away, or the clock has jumped."""
WINDOWS: Final = 50
"""The last so many count."""


class ReleaseRate:
    """Of one node since its start."""

    def __init__(self) -> None:
        self._since: tuple[int, int] | None = None  # time, and what had been released
        self._windows: deque[tuple[int, int]] = deque(maxlen=WINDOWS)

    def note(self, now_ms: int, released: int, first_due_ms: int | None) -> None:
        """Take note of how many messages were ever released, and when the first pending one is due."""
        if first_due_ms is None or first_due_ms > now_ms - BACKLOG_MS:
            self._since = None
            return
        if self._since is None:
            self._since = now_ms, released
            return
        passed_ms, more = now_ms - self._since[0], released - self._since[1]
        if 0 <= passed_ms < WINDOW_MS:
            return
        if more > 0 and 0 < passed_ms <= WINDOW_MS_MAX:
            self._windows.append((more, passed_ms))
        self._since = now_ms, released

    @property
    def per_s(self) -> float | None:
        """Messages a second; None: there has been no backlog."""
        if not self._windows:
            return None
        released, passed_ms = map(sum, zip(*self._windows, strict=True))
        return released * 1_000 / passed_ms
