"""Rows on their way to the disk: a bound on memory, and what had to be dropped for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tarry.proto.ledger.chunk import Chunk
from tarry.proto.ledger.schema import Kind, Missing, gap_detail, numbered


@dataclass(slots=True)
class Stretch:
    """Chunks of a part of the log of which nothing is missing; a segment holds no more than one."""

    behind: int | None = None  # the index behind which it begins; None: it goes on where the last ended
    covered: int = 0  # the index up to which it goes
    chunks: list[Chunk] = field(default_factory=list)


class Buffer:
    """Chunks in order, up to ``bytes_max``; from the first that does not fit, none until all are written."""

    def __init__(self, bytes_max: int, applied: int) -> None:
        self.applied = applied  # all indices up to here are told of, or dropped
        self.dropped = 0  # rows, so far
        self._bytes_max = bytes_max
        self._stretches = [Stretch()]
        self._bytes = 0
        self._made = 0  # the position of the next row without an index of its own
        self._hole: int | None = None  # dropping since behind this index
        self._why = "OVERFLOW"

    def __bool__(self) -> bool:
        return self._bytes > 0

    def add(self, chunk: Chunk) -> None:
        """Take rows in, or drop them."""
        if self._hole is None and self._bytes + chunk.size_bytes > self._bytes_max:
            self._hole = chunk.index - 1
        if self._hole is not None:
            self.dropped += chunk.rows
            return
        self._append(chunk)

    def number(self, rows: int) -> int:
        """Return the position of the first of rows that no entry numbers."""
        first, self._made = numbered(self._made, rows)
        return first

    def take(self) -> list[Stretch]:
        """Return all there is; the last goes up to where nothing else is missing."""
        covered = self.applied if self._hole is None else min(self._hole, self.applied)
        self._stretches[-1].covered = covered
        taken, self._stretches, self._bytes = self._stretches, [Stretch()], 0
        return taken

    def put_back(self, taken: list[Stretch]) -> None:
        """Take back what could not be written."""
        self._why = "WRITE_FAILED"
        if taken:
            taken[-1].chunks += self._stretches[0].chunks
            taken[-1].covered = self._stretches[0].covered
            self._stretches = taken + self._stretches[1:]
        self._bytes = sum(chunk.size_bytes for one in self._stretches for chunk in one.chunks)

    def written(self, at_ms: int, term: int) -> str | None:
        """Note that the rows taken are on disk; where rows were dropped, return the text of a gap row."""
        detail = None
        if self._hole is not None and not self:
            first, self._hole = self._hole, None
            detail = self.gap(first, self.applied, self._why, at_ms, term)
        self._why = "OVERFLOW"
        return detail

    def gap(self, first: int, last: int, why: str, at_ms: int, term: int) -> str:
        """Add a row that says that those of first < index ≤ last are missing; return its text."""
        detail = gap_detail(Missing.ALL, first, last, why)
        if self._hole is None:  # else that hole has this one in it
            self._stretches[-1].covered = first
            self._stretches.append(Stretch(behind=last))
            self._append(self._about_node(Kind.GAP, at_ms, term, detail))
        return detail

    def add_about_node(self, kind: Kind, at_ms: int, term: int, detail: str) -> None:
        """Add a row about the node."""
        self.add(self._about_node(kind, at_ms, term, detail))

    def _about_node(self, kind: Kind, at_ms: int, term: int, detail: str) -> Chunk:
        return Chunk(1, kind, at_ms, self.applied, term, self.number(1), detail=detail)

    def _append(self, chunk: Chunk) -> None:
        self._stretches[-1].chunks.append(chunk)
        self._bytes += chunk.size_bytes
