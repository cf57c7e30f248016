"""Events of applying, as columns, which the node's ledger takes after each entry.

A function of the entries and the state alone, so replicas tell the same, in the same order.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tarry.proto.ledger.schema import Kind

Column: TypeAlias = NDArray[Any] | None


class Event(NamedTuple):
    """One thing that happened to n messages, or (n = 1, no columns) to a group; columns of shape (n,)."""

    kind: Kind
    n: int
    at_ms: int
    queue: int | NDArray[np.uint32] = -1  # names the topic, and the group if it is a retry queue
    topic: str | None = None  # where no queue does
    group: str | None = None
    hour: Column = None
    global_index: Column = None
    due_ms: Column = None
    offset: Column = None
    attempt: Column = None
    detail: str | None = None
    by_id: bool = False  # hour and global index are of an id; else of a place, until it is told


class Events:
    """Events since the last call of ``take``; gathered only if ``wanted``."""

    def __init__(self) -> None:
        self.wanted = False
        self._gathered: list[Event] = []

    def add(self, event: Event) -> None:
        """Take note of an event of at least one row."""
        if self.wanted and event.n:
            self._gathered.append(event)

    def take(self) -> list[Event]:
        """Return what was gathered since the last call, in order."""
        gathered, self._gathered = self._gathered, []
        return gathered
