"""Rows on their way to the disk: a bound on memory, and what had to be dropped for it."""

from __future__ import annotations

from tarry.proto.ledger_chunk import Chunk
from tarry.proto.ledger_rows import Kind, Missing, gap_detail


class Buffer:
    """Chunks in order, up to ``bytes_max``; from the first that does not fit, none until all are written."""

    def __init__(self, bytes_max: int, applied: int) -> None:
        self.applied = applied  # all indices up to here are told of, or dropped
        self.dropped = 0  # rows, so far
        self._bytes_max = bytes_max
        self._chunks: list[Chunk] = []
        self._bytes = 0
        self._made = 0  # rows without an index of their own, so far
        self._hole: int | None = None  # dropping since behind this index
        self._why = "OVERFLOW"

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def add(self, chunk: Chunk) -> None:
        """Take rows in, or drop them."""
        if self._hole is None and self._bytes + chunk.size_bytes > self._bytes_max:
            self._hole = chunk.index - 1
        if self._hole is not None:
            self.dropped += chunk.rows
            return
        self._chunks.append(chunk)
        self._bytes += chunk.size_bytes

    def number(self, rows: int) -> int:
        """Return the position of the first of rows that no entry numbers."""
        first, self._made = self._made, self._made + rows
        return first

    def take(self) -> tuple[list[Chunk], int]:
        """Return all there is, and the index up to which nothing else is missing."""
        covered = self.applied if self._hole is None else min(self._hole, self.applied)
        taken, self._chunks, self._bytes = self._chunks, [], 0
        return taken, covered

    def put_back(self, taken: list[Chunk]) -> None:
        """They could not be written."""
        self._why = "WRITE_FAILED"
        self._chunks = taken + self._chunks
        self._bytes = sum(chunk.size_bytes for chunk in self._chunks)

    def written(self, at_ms: int, term: int) -> str | None:
        """What was taken is on the disk: where rows were dropped, a gap row follows; return what it says."""
        detail = None
        if self._hole is not None and not self._chunks:
            detail = gap_detail(Missing.ALL, self._hole, self.applied, self._why)
            self._hole = None
            self.tell(Kind.GAP, at_ms, term, detail)
        self._why = "OVERFLOW"
        return detail

    def tell(self, kind: Kind, at_ms: int, term: int, detail: str) -> None:
        """Add a row about the node."""
        self.add(Chunk(1, kind, at_ms, self.applied, term, self.number(1), detail=detail))
