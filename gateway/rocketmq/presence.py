"""Presence: which clients are there, by their calls and their streams of Telemetry."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Final

CLIENTS_MAX: Final = 100_000


class Presence:
    """The time at which each client was seen last."""

    def __init__(self, silent_ms: int, clock_s: Callable[[], float]) -> None:
        self._silent_s, self._clock_s = silent_ms / 1_000, clock_s
        self._seen_s: OrderedDict[Hashable, float] = OrderedDict()  # the longest silent first
        self._streams: Counter[Hashable] = Counter()

    def seen(self, client: Hashable) -> None:
        """Note a call of a client."""
        self._seen_s[client] = self._clock_s()
        self._seen_s.move_to_end(client)
        if len(self._seen_s) > CLIENTS_MAX:
            self._seen_s.popitem(last=False)

    @contextmanager
    def stream(self, client: Hashable) -> Iterator[None]:
        """Hold a client for there while it has a stream."""
        self._streams[client] += 1
        try:
            yield
        finally:
            if client in self._streams:  # it has not said that it ends
                self._streams[client] -= 1
                if self._streams[client] <= 0:
                    del self._streams[client]
                self.seen(client)

    def leave(self, client: Hashable) -> None:
        """Note that a client has said that it ends; its stream may still be open."""
        self._seen_s.pop(client, None)
        self._streams.pop(client, None)

    def is_there(self, client: Hashable) -> bool:
        """Say whether a client has a stream, or was seen of late."""
        if self._streams.get(client, 0) > 0:
            return True
        seen_s = self._seen_s.get(client)
        return seen_s is not None and self._clock_s() - seen_s <= self._silent_s
