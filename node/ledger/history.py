"""Search of a ledger for the rows of one message: newest segment first, up to the row of its scheduling.

    segments, newest first ─► row group: global index? ─► and hour? ─► the whole rows
                                  └─ no: the next, at some 0.2 ms

Nothing of a message is older than its scheduling, so that a search goes no further back. It runs in a process
of its own (`history_search`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tarry.proto.ledger.arrow import PLAIN, batch
from tarry.proto.ledger.chunk import Chunk, unpack
from tarry.proto.ledger.schema import Kind, stem
from tarry.proto.ledger.segment import Closed, OpenSegment

ROWS_MAX: Final = 10_000
"""Of one answer; a message whose rows are more is asked for again, with an earlier end."""
GAPS_MAX: Final = 100
Row: TypeAlias = dict[str, Any]
"""Columns of a row, without those that are null."""


class Wanted(NamedTuple):
    """A message, and the times of its rows: in [from_ms, until_ms)."""

    hour: int
    global_index: int
    from_ms: int
    until_ms: int


@dataclass(slots=True)
class Part:
    """Rows of one segment, and how far the search is."""

    since_ms: int
    """All rows of then or later have been looked through."""
    rows_looked: int
    rows_left: int
    rows: list[Row] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    complete: bool = False
    from_beginning: bool = False


def search(found: Sequence[Closed | OpenSegment], wanted: Wanted) -> Iterator[Part]:
    """Yield a part for each segment looked through; the last one says whether the search is complete.

    A closed segment that retention deletes meanwhile is passed over. Raises OSError, also where one that was
    open, and had rows, is nowhere any more.
    """
    left = [one for one in found if _may_hold(one, wanted)]
    looked, told, gaps, begun = 0, 0, 0, -1  # the index of its scheduling
    while left:
        one = left.pop()
        if begun >= 0 and _last_index(one) < begun:
            left.append(one)
            break
        rows, gap_rows = _rows(one, wanted)
        looked += _count(one)
        room = ROWS_MAX - told
        kept = sorted(rows, key=lambda row: row["at_ms"])[max(0, len(rows) - room) :]
        part = Part(_since_ms(left, wanted), looked, sum(map(_count, left)), kept)
        part.gaps = [row.get("detail", "") for row in gap_rows][: GAPS_MAX - gaps]
        told, gaps = told + len(kept), gaps + len(part.gaps)
        begun = min((row["index"] for row in rows if row["kind"] == Kind.SCHEDULED), default=begun)
        if len(kept) < len(rows):
            if kept:  # others of the first one's time may be left out
                part.since_ms = kept[0]["at_ms"] + 1
                yield part
            return
        part.from_beginning = begun >= 0
        yield part
    yield Part(wanted.from_ms, looked, 0, complete=True, from_beginning=begun >= 0)


def _since_ms(left: Sequence[Closed | OpenSegment], wanted: Wanted) -> int:
    """Return the time behind all segments that are left."""
    ends = [wanted.until_ms if isinstance(one, OpenSegment) else one[1]["last_at_ms"] + 1 for one in left]
    return max([wanted.from_ms, *ends])


def _count(one: Closed | OpenSegment) -> int:
    return one.rows if isinstance(one, OpenSegment) else one[1]["rows"]


def _last_index(one: Closed | OpenSegment) -> int:
    return one.covered if isinstance(one, OpenSegment) else one[1]["last_index"]


def _may_hold(one: Closed | OpenSegment, wanted: Wanted) -> bool:
    if isinstance(one, OpenSegment):
        return True
    told = one[1]
    in_time = told["last_at_ms"] >= wanted.from_ms and told["first_at_ms"] < wanted.until_ms
    return told["rows"] > 0 and in_time


def _rows(one: Closed | OpenSegment, wanted: Wanted) -> tuple[list[Row], list[Row]]:
    """Return a segment's rows of the message, and those that tell of gaps."""
    try:
        if not isinstance(one, OpenSegment):
            return _of_closed(one[0], wanted, has_gaps=Kind.GAP in one[1]["kinds"])
        return _of_open(one, wanted)
    except FileNotFoundError:
        if not isinstance(one, OpenSegment) or not one.bytes:
            return [], []
        # It was closed meanwhile, perhaps with more rows: its name tells the index of the last one.
        name = stem(escape(one.source), one.run, one.first_index, "*", one.segment)
        closed = next(one.ledger.glob(f"date=*/{name}.parquet"), None)
        if closed is None:
            raise
    return _of_closed(closed, wanted)


def _of_open(one: OpenSegment, wanted: Wanted) -> tuple[list[Row], list[Row]]:
    rows: list[Row] = []
    gaps: list[Row] = []
    for payload in one.payloads():
        chosen = [chunk for chunk in unpack(payload) if chunk.kind == Kind.GAP or _is_in(chunk, wanted)]
        if chosen:
            table = pa.Table.from_batches([batch(chosen, one.source, one.run)]).cast(PLAIN)
            rows += _plain(table.filter(_of_message(wanted)))
            gaps += _plain(table.filter(_of_gap(wanted)))
    return rows, gaps


def _is_in(chunk: Chunk, wanted: Wanted) -> bool:
    if chunk.global_index is None or chunk.hour is None:
        return False
    same = (np.asarray(chunk.global_index) == wanted.global_index) & (np.asarray(chunk.hour) == wanted.hour)
    return bool(np.any(same))


def _of_closed(path: Path, wanted: Wanted, *, has_gaps: bool = True) -> tuple[list[Row], list[Row]]:
    rows: list[Row] = []
    gaps: list[Row] = []
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            if _names(file, group, "global_index", wanted.global_index) and _names(
                file, group, "hour", wanted.hour
            ):
                rows += _plain(_whole(file, group).filter(_of_message(wanted)))
            if has_gaps:
                gaps += _plain(_whole(file, group).filter(_of_gap(wanted)))
    return rows, gaps


def _names(file: pq.ParquetFile, group: int, column: str, value: int) -> bool:
    """Return whether a column of a row group has a value."""
    values = file.read_row_group(group, columns=[column], use_threads=False)[column]
    return bool(pc.any(pc.equal(values, value)).as_py())


def _whole(file: pq.ParquetFile, group: int) -> pa.Table:
    return file.read_row_group(group, use_threads=False).cast(PLAIN)


def _in_time(wanted: Wanted) -> pc.Expression:
    return (pc.field("at_ms") >= wanted.from_ms) & (pc.field("at_ms") < wanted.until_ms)


def _of_message(wanted: Wanted) -> pc.Expression:
    own = (pc.field("hour") == wanted.hour) & (pc.field("global_index") == wanted.global_index)
    return own & _in_time(wanted)


def _of_gap(wanted: Wanted) -> pc.Expression:
    return (pc.field("kind") == Kind.GAP.value) & _in_time(wanted)


def _plain(table: pa.Table) -> list[Row]:
    return [{name: value for name, value in row.items() if value is not None} for row in table.to_pylist()]
