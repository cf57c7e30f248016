"""The journal as pysyncobj knows it: positions instead of indices, slices, its names.

A slice is read entry by entry when asked for: the engine slices the whole rest of the log for every message
that it sends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from tarry.replication.journal.journal import Journal
from tarry.replication.journal.records import Entry, JournalMisused


class JournalView:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def add(self, command: bytes, idx: int, term: int) -> None:
        self._journal.append(command, idx, term)

    def deleteEntriesFrom(self, entryFrom: int) -> None:  # noqa: N802, N803
        if entryFrom < len(self):
            self._journal.delete_from(self._journal.first_index + entryFrom)

    def deleteEntriesTo(self, entryTo: int) -> None:  # noqa: N802, N803
        raise JournalMisused("the engine never compacts by itself")

    def clear(self) -> None:
        raise JournalMisused("the engine never clears the journal")

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:  # noqa: N802, N803
        self._journal.set_commit_index(raftCommitIndex)

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        return self._journal.commit_index

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:  # noqa: N802, N803
        self._journal.set_term(term, votedForNodeId)

    def getCurrentTerm(self) -> int:  # noqa: N802
        return self._journal.term

    def getVotedForNodeId(self) -> str | None:  # noqa: N802
        return self._journal.voted_for

    def onOneSecondTimer(self) -> None:  # noqa: N802
        """Do nothing: every turn of the driver writes."""

    def _destroy(self) -> None:
        """Do nothing: the driver owns the journal."""

    def __len__(self) -> int:
        journal = self._journal
        return journal.last_index - journal.first_index + 1 if journal.last_index else 0

    @overload
    def __getitem__(self, item: int) -> Entry: ...

    @overload
    def __getitem__(self, item: slice) -> LazySlice: ...

    def __getitem__(self, item: int | slice) -> Entry | LazySlice:
        journal = self._journal
        if isinstance(item, slice):
            start, stop, _ = item.indices(len(self))
            return LazySlice(journal, journal.first_index + start, journal.first_index + max(start, stop))
        return journal.entry((journal.first_index if item >= 0 else journal.last_index + 1) + item)


class LazySlice(Sequence[Entry]):
    """Entries `start` … `stop - 1` (indices), each read when asked for."""

    __slots__ = ("_journal", "_start", "_stop")

    def __init__(self, journal: Journal, start: int, stop: int) -> None:
        self._journal, self._start, self._stop = journal, start, stop

    def __len__(self) -> int:
        return self._stop - self._start

    def __iter__(self) -> Iterator[Entry]:
        return map(self._journal.entry, range(self._start, self._stop))

    @overload
    def __getitem__(self, item: int) -> Entry: ...

    @overload
    def __getitem__(self, item: slice) -> LazySlice: ...

    def __getitem__(self, item: int | slice) -> Entry | LazySlice:
        if isinstance(item, slice):
            start, stop, _ = item.indices(len(self))
            return LazySlice(self._journal, self._start + start, self._start + max(start, stop))
        if not -len(self) <= item < len(self):
            raise IndexError(item)
        return self._journal.entry((self._start if item >= 0 else self._stop) + item)
