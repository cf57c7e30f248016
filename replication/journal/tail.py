"""Latest entries of a journal, in memory: as many as its bounds allow, and all not yet durable."""

from __future__ import annotations

from itertools import takewhile

from tarry.replication.journal.records import Entry


class Tail:
    def __init__(self, bytes_max: int, entries_max: int) -> None:
        self._bytes_max = bytes_max
        self._entries_max = entries_max
        self._entries: dict[int, tuple[Entry, int]] = {}  # by index: entry, chain
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, index: int) -> tuple[Entry, int] | None:
        """Return an entry and its chain; None: it is not in memory."""
        return self._entries.get(index)

    def put(self, entry: Entry, chain: int) -> None:
        """Add the entry after the last one."""
        self._entries[entry[1]] = entry, chain
        self._bytes += len(entry[0])

    def forget(self, index: int) -> None:
        held = self._entries.pop(index, None)
        if held is not None:
            self._bytes -= len(held[0][0])

    def forget_below(self, index: int) -> None:
        for gone in list(takewhile(index.__gt__, self._entries)):
            self.forget(gone)

    def trim(self, limit: int) -> None:
        """Forget the oldest entries beyond the bounds; those from `limit` on stay in any case."""
        while self._bytes > self._bytes_max or len(self._entries) > self._entries_max:
            oldest = next(iter(self._entries))
            if oldest >= limit:
                return
            self.forget(oldest)

    def clear(self) -> None:
        self._entries.clear()
        self._bytes = 0
