"""Deliveries that wait in the client for the application, and the times of their leases. No clock or network.

While they wait their leases are extended, so that a message's lease counts
(nearly) from when the application gets it, however far ahead the credit lets
the cluster send.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tarry.client.consumers.message import Message, MessageBatch, View

Offsets = tuple[int, list[int]]
"""Queue and offsets in it."""


class Buffer:
    """Queue of batches. Times are monotonic seconds; leases from before ``oldest_s`` are over."""

    def __init__(self) -> None:
        self.expired: list[Offsets] = []
        """Passed over because their leases were over; for the caller to take out."""
        self._batches: deque[MessageBatch] = deque()
        self._begun: MessageBatch | None = None
        self._messages: deque[Message] = deque()
        """What is left of ``_begun``."""

    def put(self, batch: MessageBatch) -> None:
        """Add a batch."""
        self._batches.append(batch)

    def batch(self, oldest_s: float) -> MessageBatch | None:
        """Take the next batch, None where there is none."""
        while self._batches:
            batch = self._batches.popleft()
            if batch.leased_s >= oldest_s:
                return batch
            self.expired.append((batch.queue, batch.offsets))
        return None

    def message(self, oldest_s: float) -> Message | None:
        """Take the next message of the batches, None where there is none."""
        while True:
            if self._messages and self._begun is not None:
                if self._begun.leased_s >= oldest_s:
                    return self._messages.popleft()
                self.expired += _by_queue(self._messages)
                self._messages.clear()
            if not self._batches:
                return None
            self._begun = self._batches.popleft()
            self._messages.extend(self._begun)

    def keep(self, holds: Callable[[View], bool]) -> None:
        """Drop messages that are no longer in hand."""
        self._messages = deque(filter(holds, self._messages))
        for batch in self._batches:
            batch.keep([at for at, message in enumerate(batch) if holds(message)])
        self._batches = deque(filter(len, self._batches))

    def clear(self) -> None:
        """Drop all."""
        self.expired.clear()
        self._batches.clear()
        self._messages.clear()

    def waiting(self) -> list[Offsets]:
        """Return what waits."""
        begun = _by_queue(self._messages) if self._messages else []
        return begun + [(batch.queue, batch.offsets) for batch in self._batches]

    def renew(self, before_s: float, now_s: float) -> list[Offsets]:
        """Return what waits since before ``before_s``; its leases count from ``now_s`` on."""
        renewed = []
        if self._messages and self._begun is not None and self._begun.leased_s < before_s:
            self._begun.leased_s = now_s
            renewed += _by_queue(self._messages)
        for batch in self._batches:
            if batch.leased_s >= before_s:
                break  # later ones are younger
            batch.leased_s = now_s
            renewed.append((batch.queue, batch.offsets))
        return renewed


def _by_queue(messages: deque[Message]) -> list[Offsets]:
    return [(messages[0].queue, [message.offset for message in messages])]
