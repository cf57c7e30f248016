"""The rate at which a cluster releases while there is more to release: what it can do, not what it is asked.

Noted at each heartbeat, by every node, from what it has applied. Only times count at whose beginning and end
releases were full: a backlog, or a crowd that was begun with early.
"""

from __future__ import annotations

from collections import deque
from typing import Final

DEFAULT_PER_S: Final = 50_000.0
"""Assumed where no release was full; the dispatcher begins with the same."""
WINDOW_MS: Final = 100
"""A time counts once it is so long."""
WINDOW_MS_MAX: Final = 2_000
"""One that is longer does not count: heartbeats stayed away, or the clock has jumped."""
WINDOWS: Final = 50
"""The last so many count."""


class ReleaseRate:
    """Of one node since its start."""

    def __init__(self) -> None:
        self._since: tuple[int, int] | None = None  # time, and what had been released
        self._windows: deque[tuple[int, int]] = deque(maxlen=WINDOWS)

    def note(self, now_ms: int, released: int, *, full: bool) -> None:
        """Take note of how many messages were ever released, and whether the last release was full."""
        if not full:
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
        """Messages a second; None: no release was full."""
        if not self._windows:
            return None
        released, passed_ms = map(sum, zip(*self._windows, strict=True))
        return released * 1_000 / passed_ms
