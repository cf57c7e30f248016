"""The lower wheel: 3,600 slots of one second for one open hour.

A slot is the head of its second's chain: the newest unit's global index, whence each unit's pre-global index
leads to the one before.

    slots   … │ 1417: {head 6, count 3, gone 1} │ …
                         └── unit 6 ── pre ─► unit 4 ── pre ─► unit 0 ── pre ─► NONE

The file is mapped, and never forced to disk: everything in it follows from the delay index and the set of
what is gone, and after a crash it is rebuilt from them unless its checksum proves it current. An hour of few
messages has none: to rebuild its slots costs no more than to map them.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from tarry.wheel.columns import starts_of
from tarry.wheel.state import HOUR_SECONDS, SECOND_MS, Numbers

SLOT: Final = np.dtype(
    [
        # Global index of the second's newest unit, plus 1; 0: none, so a sparse file is empty.
        ("next_to_head", "<i8"),
        ("count", "<u4"),  # units of the second, whatever became of them
        ("gone", "<u4"),  # of those, cancelled or overtaken
    ]
)
SLOTS_BYTES: Final = SLOT.itemsize * HOUR_SECONDS


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """The places of new units in their seconds' chains; nothing is changed until `SecondWheel.link`."""

    local_index: Numbers
    pre_global_index: Numbers
    second: NDArray[np.uint16]
    newest: NDArray[np.int64]
    added: NDArray[np.intp]


class SecondWheel:
    """The slots of one hour: in a mapped file, or only in memory."""

    __slots__ = ("_count", "_gone", "_head", "_slots")

    def __init__(self, slots: NDArray[np.void]) -> None:
        self._slots = slots
        self._head = slots["next_to_head"]
        self._count = slots["count"]
        self._gone = slots["gone"]

    @classmethod
    def in_memory(cls) -> SecondWheel:
        """Return empty slots that are in no file."""
        return cls(np.zeros(HOUR_SECONDS, SLOT))

    @classmethod
    def mapped(cls, path: str) -> SecondWheel:
        """Map the slots of a file, created empty where it is missing or has a wrong size. Raises OSError."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(fd).st_size != SLOTS_BYTES:
                os.ftruncate(fd, 0)
                os.ftruncate(fd, SLOTS_BYTES)
            return cls(np.frombuffer(mmap.mmap(fd, SLOTS_BYTES), SLOT))
        finally:
            os.close(fd)

    def moved_to(self, path: str) -> SecondWheel:
        """Return the same slots in a file, whatever it held. Raises OSError."""
        moved = SecondWheel.mapped(path)
        moved._slots[:] = self._slots
        return moved

    def place(self, second: NDArray[np.uint16], first: int) -> Places:
        """Chain n units, global indices from `first` on, of these seconds (0 to 3,599), shape (n,)."""
        if len(second) == 1:
            return self._place_one(second, first)
        order = np.argsort(second, kind="stable")
        ordered = second[order]
        starts = starts_of(ordered)
        ends = np.append(starts[1:], len(second))
        added = ends - starts
        distinct = ordered[starts]
        chained = order + first
        rank = np.arange(len(second)) + np.repeat(self._count[distinct] - starts, added)
        before = np.empty(len(second), np.int64)
        before[1:] = chained[:-1]
        before[starts] = self._head[distinct] - 1
        local_index = np.empty(len(second), np.uint32)
        pre_global_index = np.empty(len(second), np.uint32)
        local_index[order] = rank
        pre_global_index[order] = before.astype(np.uint32)  # -1 becomes NONE
        return Places(local_index, pre_global_index, distinct, chained[ends - 1], added)

    def _place_one(self, second: NDArray[np.uint16], first: int) -> Places:
        """Chain one unit: most hours get one message, where a batch is spread over months."""
        before = self._head[second] - 1
        return Places(
            self._count[second],
            before.astype(np.uint32),
            second,
            np.array([first], np.int64),
            np.array([1], np.intp),
        )

    def link(self, places: Places) -> None:
        """Make placed units the heads of their seconds, once they are written."""
        self._head[places.second] = places.newest + 1
        self._count[places.second] += places.added.astype(np.uint32)

    def lose(self, second: NDArray[np.uint16]) -> None:
        """Count units of these seconds that are newly gone."""
        np.add.at(self._gone, second, np.uint32(1))

    def chain(self, second: int) -> tuple[int, int]:
        """Return the second's newest global index (-1: none) and how many units it has."""
        return int(self._head[second]) - 1, int(self._count[second])

    def counts(self) -> Numbers:
        """Return the number of units of each second, whatever became of them, u4[3600]; a view."""
        return self._count

    def live(self, begin: int = 0, end: int = HOUR_SECONDS) -> Numbers:
        """Count the units of each second, or of some, that are not gone, u4[end - begin]."""
        live: Numbers = self._count[begin:end] - self._gone[begin:end]
        return live

    def has_gone(self, second: int) -> bool:
        """Return whether a unit of the second is gone."""
        return bool(self._gone[second])

    def first_live(self, second: int) -> int | None:
        """Return the first second at or after `second` with a unit that is not gone."""
        some = self._count[second:] > self._gone[second:]
        at = int(some.argmax())
        return second + at if at < len(some) and bool(some[at]) else None

    def checksum(self) -> int:
        """Return crc32c of all slots."""
        return int(google_crc32c.value(self._slots.tobytes()))

    def rebuild(self, due_columns: Iterable[tuple[int, Numbers]], gone_due: Numbers) -> None:
        """Set every slot from the index's due_in_hour_ms, in blocks, and from that of those gone."""
        head = np.zeros(HOUR_SECONDS, np.int64)
        count = np.zeros(HOUR_SECONDS, np.int64)
        for start, due_in_hour_ms in due_columns:
            second = due_in_hour_ms // np.uint32(SECOND_MS)
            np.maximum.at(head, second, np.arange(start + 1, start + 1 + len(second)))
            count += np.bincount(second, minlength=HOUR_SECONDS)
        gone = np.bincount(gone_due // np.uint32(SECOND_MS), minlength=HOUR_SECONDS)
        for column, values in ((self._head, head), (self._count, count), (self._gone, gone)):
            changed = np.flatnonzero(column != values)  # a store to an untouched page would take disk space
            column[changed] = values[changed]
