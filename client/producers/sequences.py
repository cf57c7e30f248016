"""Numbers of a producer's requests, in a window that the server can remember.

The server keeps the last 64 answers of a producer. A request that is retried
for long must not fall out of them, so what counts is not how many requests are
in flight but how far the newest is ahead of the oldest one unanswered.
"""

from __future__ import annotations

import asyncio


class Sequences:
    """Sequences from 1, growing by one; at most ``window`` from the oldest unanswered one on."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._next = 1
        self._oldest = 1
        self._answered: set[int] = set()
        self._room = asyncio.Event()

    @property
    def in_flight(self) -> int:
        """Requests without an answer."""
        return self._next - self._oldest - len(self._answered)

    async def take(self) -> int:
        """Return the next sequence, as soon as the window has room for it."""
        while self._next - self._oldest >= self._window:
            self._room.clear()
            await self._room.wait()
        sequence = self._next
        self._next += 1
        return sequence

    def answered(self, sequence: int) -> None:
        """Record that no further attempt of this request will be made."""
        self._answered.add(sequence)
        while self._oldest in self._answered:
            self._answered.remove(self._oldest)
            self._oldest += 1
        self._room.set()
