"""Dry run of an import: every row is looked at as an import would, and nothing is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow.compute as pc

from tarry.client.bulk.files import FileSource
from tarry.client.bulk.mapping import Chunk
from tarry.client.bulk.values import DryRun

HOUR_MS: Final = 3_600_000
HOURS_MAX: Final = 48
TOPICS_MAX: Final = 100
REASONS_MAX: Final = 100


class Tally:
    """Counts of a source's rows."""

    def __init__(self, now_ms: int, total: int | None) -> None:
        self._now_ms, self._total = now_ms, total
        self._rows = self._messages = self._overdue = self._refused = self._skipped = self._bytes = 0
        self._first_ms: int | None = None
        self._last_ms: int | None = None
        self._topics: Counter[str] = Counter()
        self._hours: Counter[int] = Counter()
        self._faults: dict[str, str] = {}

    def add(self, chunk: Chunk) -> None:
        """Count the rows of a chunk."""
        self._rows += chunk.size
        self._messages += len(chunk.rows)
        self._refused += len(chunk.faults)
        self._skipped += chunk.skipped
        for fault in chunk.faults:
            if fault.reason not in self._faults and len(self._faults) < REASONS_MAX:
                self._faults[fault.reason] = f"row {fault.row}: {fault.text}"
        if not len(chunk.rows):
            return
        due_ms = chunk.messages.column("due_ms").to_numpy()
        self._overdue += int((due_ms < self._now_ms).sum())
        first, last = int(due_ms.min()), int(due_ms.max())
        self._first_ms = first if self._first_ms is None else min(self._first_ms, first)
        self._last_ms = last if self._last_ms is None else max(self._last_ms, last)
        self._bytes += pc.sum(pc.binary_length(chunk.messages.column("body"))).as_py() or 0
        for row in pc.value_counts(chunk.messages.column("topic")).to_pylist():
            self._topics[row["values"]] += row["counts"]
        hours, counts = np.unique(np.maximum(due_ms, self._now_ms) // HOUR_MS, return_counts=True)
        self._hours.update(dict(zip(hours.tolist(), counts.tolist(), strict=True)))

    def result(self, *, done: bool) -> DryRun:
        """Return the counts."""
        return DryRun(
            rows=self._rows,
            total=self._total,
            messages=self._messages,
            overdue=self._overdue,
            refused=self._refused,
            skipped=self._skipped,
            body_bytes=self._bytes,
            first_due_ms=self._first_ms,
            last_due_ms=self._last_ms,
            topics=dict(self._topics.most_common(TOPICS_MAX)),
            by_hour={hour * HOUR_MS: self._hours[hour] for hour in sorted(self._hours)[:HOURS_MAX]},
            faults=self._faults,
            done=done,
        )


def looked_at(source: FileSource, now_ms: int) -> Iterator[DryRun]:
    """Yield what an import would come to, after each chunk, and last of all. Raises InvalidSource."""
    tally = Tally(now_ms, source.rows)
    for chunk in source.chunks():
        tally.add(chunk)
        yield tally.result(done=False)
    yield tally.result(done=True)
