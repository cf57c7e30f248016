"""Receipts: what a producer or a consumer itself saw, in the form of the nodes' ledgers.

    <receipts>/<source>/date=…/…parquet and .json     as in proto/ledger/schema.py

Asked for with ``connect(…, receipts="folder")``. Rows are in a file 200 ms after they happened, and stay
there over the end of the process; ``finish`` closes what processes that were killed left open.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from tarry.client.results import Place
from tarry.client.settings import Settings
from tarry.proto.extras import lacking
from tarry.proto.ledger.chunk import Chunk, pack
from tarry.proto.ledger.parquet import close
from tarry.proto.ledger.schema import REPEATED, Kind, Missing, gap_detail, numbered
from tarry.proto.ledger.segment import OpenSegment, closed, recover
from tarry.proto.message_id import MessageId
from tarry.proto.tarry_producer_pb2 import ScheduleBatchResponse

log = logging.getLogger(__name__)

FLUSH_S: Final = 0.2
ROWS_MAX: Final = 200_000
"""In memory, while the disk is slow; more are dropped, and a gap row says so."""
SEGMENT_ROWS_MAX: Final = 1_000_000
HELD_MAX: Final = 200_000
"""Number of recent deliveries whose ack can still be recorded."""


class _Row(NamedTuple):
    kind: Kind
    topic: str | None
    term: int
    at_ms: int
    place: Place | None
    detail: str | None = None


class Receipts:
    """The receipts of one producer or consumer. Belongs to one event loop."""

    def __init__(self, folder: str | Path, source: str, group: str | None = None) -> None:
        """Take ``source``, ``producer:<name>`` or ``consumer:<name>``, of one living process only."""
        self.dropped = 0
        """Rows that could not be kept."""
        self._folder = Path(folder) / source.replace(":", "_")
        self._source = source
        self._group = group
        self._run = f"{time.time_ns() // 1_000_000:x}"
        self._rows: list[_Row] = []
        self._hole = False
        self._held: dict[tuple[int, int], tuple[str, Place]] = {}
        self._position = 0
        self._open: OpenSegment | None = None
        self._task: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self._closed = False

    def produced(
        self, topics: Sequence[str], topic: Sequence[int] | None, done: ScheduleBatchResponse
    ) -> None:
        """Note that a request of messages of these topics has its OK."""
        names = [topics[0]] * len(done.hour) if topic is None else [topics[i] for i in topic]
        places = zip(done.hour, done.global_index, done.due_ms, strict=True)
        again = frozenset(done.repeats)
        self._add(
            _Row(Kind.PRODUCED, name, -1, _now_ms(), Place(*place), REPEATED if at in again else None)
            for at, (name, place) in enumerate(zip(names, places, strict=True))
        )

    def committed(self, topic: str, message_id: str, due_ms: int, *, repeated: bool) -> None:
        """Note that a transaction's commit has its OK; repeated: it had been committed before."""
        known = MessageId.parse(message_id)
        place = Place(known.hour, known.global_index, due_ms)
        self._add([_Row(Kind.PRODUCED, topic, -1, _now_ms(), place, REPEATED if repeated else None)])

    def received(self, topic: str, queue: int, term: int, places: Sequence[Place]) -> None:
        """Note messages of a batch that the application was given; term: of the leader that delivered it."""
        now_ms = _now_ms()
        self._add(_Row(Kind.RECEIVED, topic, term, now_ms, place) for place in places)
        self._held.update(((queue, place.offset), (topic, place)) for place in places)  # type: ignore[misc]
        for known in list(islice(self._held, max(0, len(self._held) - HELD_MAX))):
            del self._held[known]

    def acked(self, queue: int, offsets: Iterable[int]) -> None:
        """Note acks that were answered, and were not stale."""
        found = [self._held.pop((queue, offset), None) for offset in offsets]
        now_ms = _now_ms()
        self._add(_Row(Kind.ACK_ANSWERED, each[0], -1, now_ms, each[1]) for each in found if each)

    async def close(self) -> None:
        """Write everything and close the segment; what is noted later is dropped, and counted."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._write()
        left, self._open = self._open, None
        if left is not None:
            await self._try(partial(close, left, _now_ms()))

    def _add(self, rows: Iterable[_Row]) -> None:
        if self._closed:
            self.dropped += len(list(rows))
            return
        before = len(self._rows)
        self._rows.extend(rows)
        if len(self._rows) > ROWS_MAX or self._hole:
            self.dropped += len(self._rows) - before
            self._hole = True
            del self._rows[before:]
        if self._task is None:
            self._task = asyncio.create_task(self._run_on())

    async def _run_on(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            await self._write()

    async def _write(self) -> None:
        async with self._writing:
            rows, self._rows = self._rows, []
            if rows and not await self._try(partial(self._append, rows)):
                self._rows = rows + self._rows
            elif self._hole:
                self._hole = False
                detail = gap_detail(Missing.ALL, 0, 0, "OVERFLOW")
                self._rows.append(_Row(Kind.GAP, None, -1, _now_ms(), None, detail))

    def _append(self, rows: list[_Row]) -> None:
        if self._open is None:
            used = [manifest["segment"] for _, manifest in closed(self._folder)]
            for left in recover(self._folder, self._source):
                used.append(left.segment)
                close(left, _now_ms())
            self._open = OpenSegment(self._folder, self._source, self._run, 1 + max(used, default=0), 0)
        chunks = [self._chunk(list(run)) for _, run in groupby(rows, key=lambda row: (row[:3], row.detail))]
        self._open.append(pack(chunks), len(rows), 0)
        if self._open.rows >= SEGMENT_ROWS_MAX:
            full, number = self._open, self._open.segment + 1
            self._open = OpenSegment(self._folder, self._source, self._run, number, 0)
            close(full, _now_ms())

    def _chunk(self, rows: list[_Row]) -> Chunk:
        first = rows[0]
        columns: dict[str, Any] = {"at_ms": np.array([row.at_ms for row in rows])}
        if first.place is not None:
            for at, name in enumerate(Place._fields):
                values = [row.place[at] for row in rows if row.place is not None]
                columns[name] = None if values[0] is None else np.array(values)
        position, self._position = numbered(self._position, len(rows))
        consumer = self._source.partition(":")[2] if self._group is not None else None
        return Chunk(
            len(rows),
            first.kind,
            index=-1,
            term=first.term,
            position=position,
            topic=first.topic,
            group=self._group,
            consumer=consumer,
            detail=first.detail,
            **columns,
        )

    async def _try(self, work: Any) -> bool:
        try:
            await asyncio.shield(asyncio.to_thread(work))
        except OSError as error:
            log.error("receipts cannot be written: %s", error)
            return False
        return True


def receipts(settings: Settings, source: str, group: str | None = None) -> Receipts | None:
    """Return where a producer or consumer writes its receipts, None where nobody asked for any."""
    if settings.receipts is None:
        return None
    if text := lacking("spark", "pyarrow"):
        raise ModuleNotFoundError(f"receipts: {text}", name="pyarrow")
    return Receipts(settings.receipts, source, group)


def finish(folder: str | Path) -> int:
    """Close what producers and consumers that were killed left open below a folder; return how many rows.

    Only when none of them lives any more. Raises OSError.
    """
    rows = 0
    for one in sorted(Path(folder).glob("*_*/")):
        for left in recover(one, one.name.replace("_", ":", 1)):
            done = close(left, _now_ms())
            rows += done[1]["rows"] if done is not None else 0
    return rows


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
