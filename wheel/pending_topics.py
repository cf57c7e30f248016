"""Counts of pending messages by topic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tarry.wheel.state import MARK, Numbers


class PendingTopics:
    """Pending messages per topic; a change costs one array operation, whatever the number of topics."""

    __slots__ = ("_counts",)

    def __init__(self, counts: Sequence[int] = ()) -> None:
        self._counts = np.array(counts, np.int64)

    def add(self, topic: Numbers, sign: int = 1) -> None:
        """Count messages of these topics, shape (n,), in, or with sign -1 out."""
        if len(topic) == 0:
            return
        topic = topic & ~MARK
        most = int(topic.max())
        if most >= len(self._counts):
            self._counts = np.append(self._counts, np.zeros(most + 1, np.int64))
        np.add.at(self._counts, topic, sign)

    def of(self, topic: int) -> int:
        """Return the number of a topic's pending messages."""
        return int(self._counts[topic]) if topic < len(self._counts) else 0

    def of_all(self, topics: Numbers) -> int:
        """Return the number of pending messages of topics, shape (n,), together."""
        return int(self._counts[topics[topics < len(self._counts)]].sum())

    @property
    def some(self) -> int:
        """The number of topics with pending messages."""
        return int(np.count_nonzero(self._counts))

    def with_some(self) -> Numbers:
        """Return the topics that have pending messages, ascending."""
        return np.flatnonzero(self._counts).astype(np.uint32)

    def capture(self) -> tuple[int, ...]:
        """Return all counts by topic, without the zeros at the end."""
        some = np.flatnonzero(self._counts)
        return tuple(self._counts[: int(some[-1]) + 1].tolist()) if len(some) else ()
