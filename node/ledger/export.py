"""Reading a ledger for somebody else: segment by segment, filtered, from where the last export ended."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tarry.node.ledger.export_request import Place
from tarry.proto.ledger.arrow import PLAIN, to_stream
from tarry.proto.ledger.parquet import open_rows
from tarry.proto.ledger.schema import VERSION, Kind, Manifest
from tarry.proto.ledger.segment import Closed, OpenSegment, closed
from tarry.proto.tarry_operator_pb2 import ExportLedgerRequest, ExportLedgerResponse


def export(
    found: Sequence[Closed | OpenSegment], request: ExportLedgerRequest, begin: Place, rows_max: int
) -> Iterator[ExportLedgerResponse]:
    """Yield the responses; for a thread. A segment that retention deletes meanwhile is passed over."""
    rows_max = min(request.rows_max or rows_max, rows_max)
    wanted = _filter(request)
    for one in found:
        yield from _segment(one, request, wanted, begin, rows_max)


def _segment(
    one: Closed | OpenSegment,
    request: ExportLedgerRequest,
    wanted: pc.Expression | None,
    begin: Place,
    rows_max: int,
) -> Iterator[ExportLedgerResponse]:
    manifest = _manifest_of_open(one) if isinstance(one, OpenSegment) else one[1]
    if manifest["segment"] < begin.segment:
        return
    if wanted is None and not manifest["rows"] and manifest["bytes"]:
        yield _nothing(manifest, still_open=isinstance(one, OpenSegment))
    if not _may_hold(manifest, request):
        return
    skip = begin.rows if manifest["segment"] == begin.segment else 0
    told, done = json.dumps(manifest), 0
    try:
        for rows in _batches(one, rows_max):
            known = min(max(0, skip - done), rows.num_rows)
            done += rows.num_rows
            if known < rows.num_rows:
                yield from _answer(rows.slice(known), wanted, told, Place(manifest["segment"], done))
    except FileNotFoundError:
        if isinstance(one, OpenSegment) and (same := _closed_since(one)) is not None:
            yield from _segment(same, request, wanted, Place(one.segment, max(skip, done)), rows_max)


def _closed_since(one: OpenSegment) -> Closed | None:
    """Return the segment as it has been closed since it was looked at; None: it is gone."""
    for known in closed(one.ledger):
        if (known[1]["source"], known[1]["segment"]) == (one.source, one.segment):
            return known
    return None


def _nothing(manifest: Manifest, *, still_open: bool) -> ExportLedgerResponse:
    """Return that nothing happened in a segment's indices: left out, it would look lost."""
    place = Place(manifest["segment"] + (not still_open))
    none = to_stream(pa.RecordBatch.from_pylist([], PLAIN))
    return ExportLedgerResponse(segment=json.dumps(manifest), rows=none, resume=str(place))


def _answer(
    rows: pa.RecordBatch, wanted: pc.Expression | None, told: str, place: Place
) -> Iterator[ExportLedgerResponse]:
    if wanted is not None:
        rows = pa.Table.from_batches([rows]).filter(wanted).combine_chunks()
        rows = rows.to_batches()[0] if len(rows) else None
    if rows is not None and rows.num_rows:
        count = rows.num_rows
        yield ExportLedgerResponse(segment=told, rows=to_stream(rows), count=count, resume=str(place))


def _batches(one: Closed | OpenSegment, rows_max: int) -> Iterator[pa.RecordBatch]:
    if isinstance(one, OpenSegment):
        for batch in open_rows(one):
            plain = batch.cast(PLAIN)
            for start in range(0, plain.num_rows, rows_max):
                yield plain.slice(start, rows_max)
    else:
        with pq.ParquetFile(one[0]) as file:
            for batch in file.iter_batches(rows_max, use_threads=False):
                yield batch.cast(PLAIN)


def _may_hold(manifest: Manifest, request: ExportLedgerRequest) -> bool:
    return (
        manifest["rows"] > 0
        and manifest["last_at_ms"] >= request.from_ms
        and (not request.to_ms or manifest["first_at_ms"] < request.to_ms)
        and manifest["last_index"] >= request.from_index
        and (not request.to_index or manifest["first_index"] < request.to_index)
        and (not request.kinds or not set(request.kinds).isdisjoint(manifest["kinds"]))
    )


def _manifest_of_open(left: OpenSegment) -> Manifest:
    return Manifest(
        version=VERSION,
        source=left.source,
        run=left.run,
        segment=left.segment,
        first_index=left.first_index,
        last_index=left.covered,
        first_at_ms=0,
        last_at_ms=2**62,
        rows=left.rows,
        kinds=dict.fromkeys(Kind, 0),
        bytes=left.bytes,
        crc32c=0,
        filtered=False,
    )


def _filter(request: ExportLedgerRequest) -> pc.Expression | None:
    terms = [
        (pc.field("at_ms") >= request.from_ms, request.from_ms),
        (pc.field("at_ms") < request.to_ms, request.to_ms),
        (pc.field("index") >= request.from_index, request.from_index),
        (pc.field("index") < request.to_index, request.to_index),
        (pc.field("kind").isin(list(request.kinds)), request.kinds),
    ]
    wanted = None
    for term, asked in terms:
        if asked:
            wanted = term if wanted is None else wanted & term
    return wanted
