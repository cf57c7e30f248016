"""Selectors: functions that choose the ordering key of a message by what it is."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import NamedTuple, TypeAlias

QUEUE_PREFIX = "queue-"
"""With the number of a queue, from 0: its ordering key."""


class Outgoing(NamedTuple):
    """A message as a selector sees it, before it is scheduled."""

    topic: str
    body: bytes
    tags: Sequence[str]
    keys: Sequence[str]
    properties: Mapping[str, str]


Selector: TypeAlias = Callable[[Outgoing], str]
"""Returns the ordering key of a message; empty: it is delivered in no order."""


class ByHash:
    """Selector of one of ``queues`` queues, the same for the same text, in every process and version."""

    def __init__(
        self, queues: int, of: Callable[[Outgoing], str | bytes], prefix: str = QUEUE_PREFIX
    ) -> None:
        """Take what returns the text whose hash chooses the queue. Raises ValueError."""
        self._names = _names(queues, prefix)
        self._of = of

    def __call__(self, message: Outgoing) -> str:
        text = self._of(message)
        return self._names[zlib.crc32(text.encode() if isinstance(text, str) else text) % len(self._names)]


class RoundRobin:
    """Selector of ``queues`` queues, one after another. May be shared by producers and threads.

    Not for messages with idempotency keys, nor for transactions that are prepared again by their names: a
    repeated call has another ordering key, which is a conflict.
    """

    def __init__(self, queues: int, prefix: str = QUEUE_PREFIX) -> None:
        """Take the number of the queues. Raises ValueError."""
        self._next = cycle(_names(queues, prefix))

    def __call__(self, message: Outgoing) -> str:
        return next(self._next)


def selected(
    selector: Selector,
    topic: str,
    body: bytes,
    tags: Sequence[str],
    keys: Sequence[str],
    properties: Mapping[str, str] | None,
) -> str:
    """Return the ordering key that a selector chooses. Raises TypeError, and what the selector raises."""
    chosen = selector(Outgoing(topic, body, tags, keys, properties or {}))
    if not isinstance(chosen, str):
        raise TypeError(f"a selector returns the ordering key as a str, not {chosen!r}")
    return chosen


def _names(queues: int, prefix: str) -> list[str]:
    if isinstance(queues, bool) or not isinstance(queues, int) or not 1 <= queues <= 1 << 20:
        raise ValueError(f"queues must be an integer of 1 to {1 << 20}, not {queues!r}")
    return [f"{prefix}{number}" for number in range(queues)]
