"""Causes of lateness, by the turns of the leader's event loop between due time and arrival."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

CELL_S: Final = 0.0001
LATE_MS: Final = 3.0
DELIVERY: Final = "delivery"
ON_DISK: Final = "journal write"
IDLE: Final = "the loop waits (commit, disk in a thread, timer)"
PROCESSOR: Final = "no processor (scheduler, other threads)"
TO_CLIENT: Final = "to the client, and there"


@dataclass(frozen=True, slots=True)
class Spans:
    """Turns and parts of one event loop, as `turn_trace` writes them."""

    spans: NDArray[np.float64]
    cause: NDArray[np.int64]
    names: list[str]

    @classmethod
    def of_leader(cls, folder: Path) -> Spans:
        """Read the file of the process that delivered most."""
        return max(map(cls.read, folder.glob("*.npz")), key=cls.deliveries)

    @classmethod
    def read(cls, path: Path) -> Spans:
        """Read a process's file."""
        with np.load(path) as found:
            return cls(found["spans"], found["cause"], found["names"].tolist())

    def deliveries(self) -> int:
        """Return for how many parts it delivered: the leader has most."""
        return int(np.count_nonzero(self.cause == self.position(DELIVERY)))

    def position(self, name: str) -> int:
        """Return the position of a name, -1 without it."""
        return self.names.index(name) if name in self.names else -1


def waits(
    found: Spans, due_ms: NDArray[np.float64], came_ms: NDArray[np.float64], late_ms: float = LATE_MS
) -> dict[str, Any]:
    """Return, of messages later than `late_ms`, the ms by cause and for how many each was the largest."""
    late = came_ms - due_ms > late_ms
    total: dict[str, float] = defaultdict(float)
    largest: Counter[str] = Counter()
    if late.any():
        begin_s = due_ms[late].min() / 1e3
        cells, worked = _painted(found, begin_s, came_ms[late].max() / 1e3)
        delivered = np.sort(found.spans[found.cause == found.position(DELIVERY), 1])
        for due_s, came_s in zip(due_ms[late] / 1e3, came_ms[late] / 1e3, strict=True):
            at = int(np.searchsorted(delivered, came_s)) - 1
            left_s = float(np.clip(delivered[at], due_s, came_s)) if at >= 0 else came_s
            one = _by_cause(found.names, cells, worked, *_range(due_s - begin_s, left_s - begin_s))
            one[TO_CLIENT] += (came_s - left_s) * 1e3
            for cause, ms in one.items():
                total[cause] += ms
            largest[max(one, key=lambda cause: one[cause])] += 1
    return {
        "messages": len(due_ms),
        "late": int(late.sum()),
        "ms": {
            cause: round(ms, 1)
            for cause, ms in sorted(total.items(), key=lambda item: -item[1])
            if ms >= 0.05
        },
        "largest": dict(largest.most_common()),
    }


def _by_cause(
    names: list[str], cells: NDArray[np.int64], worked: NDArray[np.float64], first: int, end: int
) -> dict[str, float]:
    """Return the ms of a range of cells by cause."""
    part, share = cells[first:end] + 1, worked[first:end]
    count = np.bincount(part, minlength=len(names) + 1) * CELL_S * 1e3
    busy = np.bincount(part, share, minlength=len(names) + 1) * CELL_S * 1e3
    found = {IDLE: float(count[0]), PROCESSOR: 0.0, TO_CLIENT: 0.0}
    for name, held_ms, worked_ms in zip(names, count[1:].tolist(), busy[1:].tolist(), strict=True):
        found[name] = held_ms if name == ON_DISK else worked_ms
        found[PROCESSOR] += held_ms - found[name]
    return found


def _painted(found: Spans, begin_s: float, end_s: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return for each cell the cause of the innermost span, -1 without one, and its share of CPU time."""
    cells = np.full(_range(0.0, end_s - begin_s)[1] + 1, -1, dtype=np.int64)
    worked = np.zeros(len(cells))
    inside = np.flatnonzero((found.spans[:, 1] >= begin_s) & (found.spans[:, 0] <= end_s))
    for number in inside[::-1].tolist():  # an inner one ends before the one around it
        began_s, ended_s, cpu_s = found.spans[number]
        first, end = _range(max(0.0, began_s - begin_s), ended_s - begin_s)
        cells[first:end] = found.cause[number]
        worked[first:end] = min(1.0, cpu_s / (ended_s - began_s))
    return cells, worked


def _range(begin_s: float, end_s: float) -> tuple[int, int]:
    return round(begin_s / CELL_S), round(end_s / CELL_S)
