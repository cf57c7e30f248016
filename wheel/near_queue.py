"""The near queue: the next seconds, loaded, in compact arrays of 24 bytes a message.

    end ─────────────────────────────────────────────┐ (exclusive)
    second  1417          1418          1419         ▼
            main ▒▒▒▒▒    main ▒▒▒▒▒▒   main ▒▒      on disk only
            late ░ ░      late          late ░

Everything pending that is due before `end` is here. What a second held when it was loaded are its first runs,
sorted; what has come since are later ones, sorted some at a time. Messages of a millisecond follow those of
earlier runs, for their global indices are larger: a stable merge of the runs' heads is the order of release.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Final

import numpy as np

from tarry.wheel.columns import groups
from tarry.wheel.state import HOUR_MS, SECOND_MS, Rows, Taken

ENTRY: Final = np.dtype(
    [("due_ms", "<i8"), ("global_index", "<u4"), ("topic", "<u4"), ("tag_mask", "<u8")],
)
NOTHING: Final[Rows] = np.empty(0, ENTRY)
_RUN_MESSAGES: Final = 32_768
"""Of what has come for a second that is loaded: so many are sorted together, in some 2 ms."""
_FRESH_PARTS_MAX: Final = 512
_GATHERED_MESSAGES: Final = 512
"""For each run, that are merged at once at least."""
_BYTES: Final = np.dtype((np.void, ENTRY.itemsize))


def by_due(entries: Rows) -> Rows:
    """Return entries of one second, in the order of their global indices, sorted by due time."""
    # 16 bits make numpy's stable sort a radix sort.
    in_second = (entries["due_ms"] % SECOND_MS).astype(np.uint16)
    if bool((in_second[1:] >= in_second[:-1]).all()):
        return entries
    return entries.take(np.argsort(in_second, kind="stable"))  # take, for indexing rows is ten times slower


class _Second:
    """The loaded messages of one second, in runs, each sorted by due time; later ones have larger indices."""

    __slots__ = ("_fresh", "_fresh_messages", "first_due_ms", "runs")

    def __init__(self, runs: list[Rows]) -> None:
        self.runs = runs
        self._fresh: list[Rows] = []
        self._fresh_messages = 0
        self.first_due_ms = min(map(_earliest, runs))

    def add(self, part: Rows) -> None:
        """Take in what has come since, sorted by due time."""
        self._fresh.append(part)
        self.first_due_ms = min(self.first_due_ms, _earliest(part))
        self._fresh_messages += len(part)
        if self._fresh_messages >= _RUN_MESSAGES or len(self._fresh) >= _FRESH_PARTS_MAX:
            self._sort_fresh()

    def __len__(self) -> int:
        return sum(map(len, self.runs)) + sum(map(len, self._fresh))

    def all(self) -> Rows:
        """Return all of them, in no order."""
        return np.concatenate((*self.runs, *self._fresh))

    def before(self, due_ms: int) -> list[Rows]:
        """Return all entries due before a time, in parts."""
        return [_due_by(part, due_ms - 1, len(part)) for part in (*self.runs, *self._fresh)]

    def head(self, until_ms: int, limit: int) -> Rows:
        """Return the first entries due by `until_ms`, at most `limit`; the first run begins with them."""
        self._sort_fresh()
        head = _due_by(self.runs[0], until_ms, limit)
        if len(self.runs) == 1:
            return head
        later_ms = min(map(_earliest, self.runs[1:]))
        whole = len(head) == limit or later_ms > until_ms
        if whole and (len(head) == 0 or int(head["due_ms"][-1]) <= later_ms):
            return head
        self._gather(max(limit, _GATHERED_MESSAGES * len(self.runs)))
        return _due_by(self.runs[0], until_ms, limit)

    def _gather(self, limit: int) -> None:
        """Move the first `limit` entries of all runs to the first run.

        Each run costs as much as some hundred messages, so several slices are merged at once.
        """
        sizes = _shares([run["due_ms"].data for run in self.runs], limit)
        sizes[0] = len(self.runs[0])  # so that there are never more runs than before
        first = by_due(_joined([run[:size] for run, size in zip(self.runs, sizes, strict=True) if size]))
        rests = [run[size:] for run, size in zip(self.runs, sizes, strict=True) if size < len(run)]
        self.runs = [first, *rests]

    def drop(self, count: int) -> None:
        """Forget the first `count` of what `head` last returned."""
        self.runs[0] = self.runs[0][count:]
        if len(self.runs[0]) == 0 and len(self.runs) > 1:
            del self.runs[0]
        heads = [_earliest(part) for part in (*self.runs, *self._fresh) if len(part)]
        self.first_due_ms = min(heads, default=self.first_due_ms)

    def _sort_fresh(self) -> None:
        """Make a run of what has come; runs are merged as long as they are small."""
        if not self._fresh:
            return
        self.runs.append(self._fresh[0] if len(self._fresh) == 1 else by_due(np.concatenate(self._fresh)))
        self._fresh, self._fresh_messages = [], 0
        while len(self.runs) > 1 and _few(*self.runs[-2:]):
            self.runs[-2:] = [by_due(np.concatenate(self.runs[-2:]))]


class NearQueue:
    """Loaded seconds. `end` is the first second that is not."""

    __slots__ = ("_order", "_seconds", "count", "end")

    def __init__(self, end: int) -> None:
        self.end = end
        self.count = 0
        self._seconds: dict[int, _Second] = {}
        self._order: list[int] = []

    def load(self, end: int, entries: Rows) -> None:
        """Take in everything pending from this end to the next, by global index."""
        for second, rows in groups(entries["due_ms"] // SECOND_MS):
            self._hold(second, [by_due(entries[rows] if isinstance(rows, slice) else entries.take(rows))])
        self.end = end
        self.count += len(entries)

    def load_second(self, runs: list[Rows]) -> None:
        """Take in everything pending of the next second: runs by due time, of ascending global indices."""
        if runs:
            self._hold(self.end, runs)
        self.end += 1
        self.count += sum(map(len, runs))

    def add(self, entries: Rows) -> None:
        """Take in new messages, as appended; those due from `end` on are left to the disk."""
        near = entries["due_ms"] < self.end * SECOND_MS
        if not bool(near.all()):
            entries = entries.compress(near)
        for second, rows in groups(entries["due_ms"] // SECOND_MS):
            part = by_due(entries[rows] if isinstance(rows, slice) else entries.take(rows))
            held = self._seconds.get(second)
            if held is None:
                self._hold(second, [part])
            else:
                held.add(part)
        self.count += len(entries)

    def _hold(self, second: int, runs: list[Rows]) -> None:
        self._seconds[second] = _Second(runs)
        insort(self._order, second)

    def head(self, until_ms: int, limit: int) -> Rows:
        """Return the next entries due by `until_ms` in order of release: some, if any; at most `limit`."""
        if not self._order:
            return NOTHING
        return self._seconds[self._order[0]].head(until_ms, limit)

    def heads(self, until_ms: int, limit: int) -> Iterator[tuple[int, Rows]]:
        """Yield the next entries due by `until_ms` in order of release, by seconds; `limit` at most."""
        for second in self._order:
            if limit <= 0 or second * SECOND_MS > until_ms:
                return
            entries = self._seconds[second].head(until_ms, limit)
            limit -= len(entries)
            yield second, entries

    def drop(self, count: int) -> None:
        """Forget the first `count` of what `head` last showed."""
        second = self._order[0]
        held = self._seconds[second]
        held.drop(count)
        self.count -= count
        if len(held) == 0:
            del self._seconds[second], self._order[0]

    def shed(self, messages_max: int) -> None:
        """Leave the latest seconds to the disk until at most `messages_max` are held, or one second.

        Not a crowded one, half of that or more: it would soon be loaded again, and again.
        """
        while self.count > messages_max and len(self._order) > 1:
            if len(self._seconds[self._order[-1]]) > messages_max // 2:
                return
            self.end = self._order.pop()
            self.count -= len(self._seconds.pop(self.end))

    def first_due_ms(self) -> int | None:
        """Return the earliest due time held."""
        return self._seconds[self._order[0]].first_due_ms if self._order else None

    def due_by(self, until_ms: int) -> Iterator[tuple[int, Rows]]:
        """Yield what is held and due by a time, second by second: each in parts, with the second."""
        for second in self._order:
            if second * SECOND_MS > until_ms:
                return
            yield from ((second, part) for part in self._seconds[second].before(until_ms + 1))

    def before_in_second(self, due_ms: int) -> list[Rows]:
        """Return what is held of the second of a time and due before it, in parts."""
        held = self._seconds.get(due_ms // SECOND_MS)
        return held.before(due_ms) if held else []

    def of_second(self, second: int) -> Rows:
        """Return everything held of one second, in no order."""
        held = self._seconds.get(second)
        return held.all() if held else NOTHING


def _due_by(entries: Rows, until_ms: int, limit: int) -> Rows:
    """Return the head of sorted entries; bisect reads the column in place, searchsorted copies it."""
    return entries[: bisect_right(entries["due_ms"].data, until_ms, 0, min(limit, len(entries)))]


def _shares(due_ms: Sequence[memoryview], limit: int) -> list[int]:
    """Return how many of each run, sorted due times of one second, are among the first `limit` of all.

    Of a millisecond that not all have room of, those of the first runs.
    """
    ends = list(map(len, due_ms))
    if sum(ends) <= limit:
        return ends
    low = min(int(run[0]) for run in due_ms if len(run)) - 1  # up to it there are too few
    high = low // SECOND_MS * SECOND_MS + 2 * SECOND_MS - 1
    before = [0] * len(due_ms)
    while high - low > 1:
        middle = (low + high) // 2
        found = list(map(bisect_right, due_ms, repeat(middle), before, ends))
        if sum(found) >= limit:
            high, ends = middle, found
        else:
            low, before = middle, found
    left, shares = limit - sum(before), []
    for first, end in zip(before, ends, strict=True):
        shares.append(first + min(left, end - first))
        left -= shares[-1] - first
    return shares


def _joined(parts: list[Rows]) -> Rows:
    """Concatenate entries as plain bytes: numpy compares the fields of each part otherwise, at some 5 us."""
    return np.concatenate([part.view(_BYTES) for part in parts]).view(ENTRY)


def _few(run: Rows, later: Rows) -> bool:
    return len(run) <= 2 * len(later) and len(run) + len(later) <= _RUN_MESSAGES


def _earliest(entries: Rows) -> int:
    return int(entries["due_ms"][0])


def taken(parts: list[Rows]) -> Taken:
    """Return entries as columns, one part after another."""
    entries = parts[0] if len(parts) == 1 else np.concatenate(parts or [NOTHING])
    due = np.ascontiguousarray(entries["due_ms"])
    return Taken(
        due,
        (due // HOUR_MS).astype(np.uint32),
        np.ascontiguousarray(entries["global_index"]),
        np.ascontiguousarray(entries["topic"]),
        np.ascontiguousarray(entries["tag_mask"]),
    )
