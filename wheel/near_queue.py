"""The near queue: the next seconds, loaded, in compact arrays of 24 bytes a message.

    end ─────────────────────────────────────────────┐ (exclusive)
    second  1417          1418          1419         ▼
            main ▒▒▒▒▒    main ▒▒▒▒▒▒   main ▒▒      on disk only
            late ░ ░      late          late ░

Everything pending that is due before `end` is here. What a second held when it was loaded is `main`, sorted;
what has come since is `late`, sorted when it is needed. Late messages of a millisecond follow main's, for
their global indices are larger, so a stable merge by due time is the order of release.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from typing import Final

import numpy as np

from tarry.wheel.grouping import groups
from tarry.wheel.state import HOUR_MS, SECOND_MS, Flags, Rows, Taken

ENTRY: Final = np.dtype(
    [("due_ms", "<i8"), ("global_index", "<u4"), ("topic", "<u4"), ("tag_mask", "<u8")],
)
_NOTHING: Final[Rows] = np.empty(0, ENTRY)


def by_due(entries: Rows) -> Rows:
    """Entries of one second, in the order of their global indices, sorted by due time."""
    in_second = (entries["due_ms"] % SECOND_MS).astype(
        np.uint16
    )  # 16 bits make numpy's stable sort a radix sort
    if bool((in_second[1:] >= in_second[:-1]).all()):
        return entries
    return entries.take(np.argsort(in_second, kind="stable"))  # take, for indexing rows is ten times slower


class _Second:
    """The loaded messages of one second."""

    __slots__ = ("first_due_ms", "late", "main")

    def __init__(self, main: Rows) -> None:
        self.main = main
        self.late: list[Rows] = []
        self.first_due_ms = _earliest(main)

    def add(self, part: Rows) -> None:
        """Take in what has come since, sorted by due time."""
        self.late.append(part)
        self.first_due_ms = min(self.first_due_ms, _earliest(part))

    def __len__(self) -> int:
        return len(self.main) + sum(map(len, self.late))

    def head(self, until_ms: int, limit: int) -> tuple[Rows, Flags | None]:
        """The first entries due by `until_ms`, at most `limit`; which of them are main's, where not all."""
        main = _due_by(self.main, until_ms, limit)
        if not self.late:
            return main, None
        if len(self.late) > 1:
            self.late = [by_due(np.concatenate(self.late))]
        late = _due_by(self.late[0], until_ms, limit)
        if len(late) == 0:
            return main, None
        order = np.argsort(np.concatenate((main["due_ms"], late["due_ms"])), kind="stable")[:limit]
        return np.concatenate((main, late)).take(order), order < len(main)

    def drop(self, main: int, late: int) -> None:
        self.main = self.main[main:]
        if late:
            rest = self.late[0][late:]
            self.late = [rest] if len(rest) else []
        heads = [_earliest(part) for part in (self.main, *self.late) if len(part)]
        self.first_due_ms = min(heads, default=self.first_due_ms)


class NearQueue:
    """Loaded seconds. `end` is the first second that is not."""

    __slots__ = ("_main_shown", "_order", "_seconds", "count", "end")

    def __init__(self, end: int) -> None:
        self.end = end
        self.count = 0
        self._seconds: dict[int, _Second] = {}
        self._order: list[int] = []
        self._main_shown: Flags | None = None

    def load(self, end: int, entries: Rows, *, in_order: bool = False) -> None:
        """Take in everything pending from this end to the next, each second's by global index.

        ``in_order``: and by due time.
        """
        one = end == self.end + 1 and len(entries) > 0
        split = [(self.end, slice(None))] if one else groups(entries["due_ms"] // SECOND_MS)
        for second, rows in split:
            self._hold(second, entries[rows] if in_order else by_due(entries[rows]))
        self.end = end
        self.count += len(entries)

    def add(self, entries: Rows) -> None:
        """Take in new messages, as appended; those due from `end` on are left to the disk."""
        near = entries["due_ms"] < self.end * SECOND_MS
        if not bool(near.all()):
            entries = entries.compress(near)
        for second, rows in groups(entries["due_ms"] // SECOND_MS):
            part = by_due(entries[rows] if isinstance(rows, slice) else entries.take(rows))
            held = self._seconds.get(second)
            if held is None:
                self._hold(second, part)
            else:
                held.add(part)
        self.count += len(entries)

    def _hold(self, second: int, entries: Rows) -> None:
        self._seconds[second] = _Second(entries)
        insort(self._order, second)

    def head(self, until_ms: int, limit: int) -> Rows:
        """The next entries due by `until_ms` in order of release: at least one if there are any, at most
        `limit`.
        """
        if not self._order:
            return _NOTHING
        entries, self._main_shown = self._seconds[self._order[0]].head(until_ms, limit)
        return entries

    def heads(self, until_ms: int, limit: int) -> Iterator[tuple[int, Rows]]:
        """The next entries due by `until_ms` in order of release, by seconds; together at most `limit`."""
        for second in self._order:
            if limit <= 0 or second * SECOND_MS > until_ms:
                return
            entries = self._seconds[second].head(until_ms, limit)[0]
            limit -= len(entries)
            yield second, entries

    def drop(self, count: int) -> None:
        """Forget the first `count` of what `head` last showed."""
        second = self._order[0]
        held = self._seconds[second]
        main = count if self._main_shown is None else int(self._main_shown[:count].sum())
        held.drop(main, count - main)
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
        """The earliest due time held."""
        return self._seconds[self._order[0]].first_due_ms if self._order else None

    def of_second(self, second: int) -> Rows:
        """Everything held of one second, in no order."""
        held = self._seconds.get(second)
        return np.concatenate((held.main, *held.late)) if held else _NOTHING


def _due_by(entries: Rows, until_ms: int, limit: int) -> Rows:
    """The head of sorted entries; bisect reads the column in place, where searchsorted would copy it."""
    return entries[: bisect_right(entries["due_ms"].data, until_ms, 0, min(limit, len(entries)))]


def _earliest(entries: Rows) -> int:
    return int(entries["due_ms"][0])


def taken(parts: list[Rows]) -> Taken:
    """Entries as columns, one part after another."""
    entries = parts[0] if len(parts) == 1 else np.concatenate(parts or [_NOTHING])
    due = np.ascontiguousarray(entries["due_ms"])
    return Taken(
        due,
        (due // HOUR_MS).astype(np.uint32),
        np.ascontiguousarray(entries["global_index"]),
        np.ascontiguousarray(entries["topic"]),
        np.ascontiguousarray(entries["tag_mask"]),
    )
