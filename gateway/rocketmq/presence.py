"""Presence: which clients are there, by their calls and their streams of Telemetry."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

CLIENTS_MAX: Final = 100_000


class Presence:
    """The time at which each client was seen last."""

    def __init__(self, silent_ms: int, clock_s: Callable[[], float]) -> None:
        self._silent_s, self._clock_s = silent_ms / 1_000, clock_s
        self._seen_s: OrderedDict[str, float] = OrderedDict()  # the longest silent first
        self._streams: Counter[str] = Counter()

    def seen(self, client_id: str) -> None:
        """Note a call of a client."""
        self._seen_s[client_id] = self._clock_s()
        self._seen_s.move_to_end(client_id)
        if len(self._seen_s) > CLIENTS_MAX:
            self._seen_s.popitem(last=False)

    @contextmanager
    def stream(self, client_id: str) -> Iterator[None]:
        """Hold a client for there while it has a stream."""
        self._streams[client_id] += 1
        try:
            yield
        finally:
            if client_id in self._streams:  # it has not said that it ends
                self._streams[client_id] -= 1
                if self._streams[client_id] <= 0:
                    del self._streams[client_id]
                self.seen(client_id)

    def leave(self, client_id: str) -> None:
        """Note that a client has said that it ends; its stream may still be open."""
        self._seen_s.pop(client_id, None)
        self._streams.pop(client_id, None)

    def is_there(self, client_id: str) -> bool:
        """Say whether a client has a stream, or was seen of late."""
        if self._streams.get(client_id, 0) > 0:
            return True
        seen_s = self._seen_s.get(client_id)
        return seen_s is not None and self._clock_s() - seen_s <= self._silent_s
