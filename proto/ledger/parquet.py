"""Closing of segments: Parquet file and manifest of an open segment. Needs pyarrow."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tarry.proto.files import replace_file
from tarry.proto.ledger.schema import STRINGS, VERSION, Manifest, stem
from tarry.proto.ledger.segment import Closed, OpenSegment

if TYPE_CHECKING:
    import pyarrow as pa

_PACKED: Final = ("index", "position", "at_ms", "global_index", "due_ms", "offset")
_REPEATED: Final = [*STRINGS, "shard", "term", "hour", "attempt"]
ROW_GROUP_ROWS: Final = 1 << 17
_PARQUET: Final[dict[str, Any]] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": _REPEATED,
    "column_encoding": dict.fromkeys(_PACKED, "DELTA_BINARY_PACKED"),
    "write_statistics": ["kind", "index", "at_ms"],
    "store_schema": False,
}
_ARROW: Final = b"\xff\xff\xff\xff"
"""What an Arrow stream begins with; no packed chunks do."""


def close(left: OpenSegment, now_ms: int) -> Closed | None:
    """Make an open segment a closed one; None where it covers nothing.

    Raises:
        OSError: the disk did not take it; the open segment is still there. FileNotFoundError: it is closed.
    """
    if not left.bytes:
        left.path.unlink(missing_ok=True)
        return None
    with left.locked():
        return make_parquet(left, now_ms)


def open_rows(left: OpenSegment, rows_min: int = 1) -> Iterator[pa.RecordBatch]:
    """Yield an open segment's rows so far, in batches of so many or more."""
    from tarry.proto.ledger.arrow import batch, from_stream
    from tarry.proto.ledger.chunk import Chunk, unpack

    chunks: list[Chunk] = []
    rows = 0
    for payload in left.payloads():
        if payload.startswith(_ARROW):
            yield from_stream(payload)
            continue
        more = unpack(payload)
        chunks += more
        rows += sum(chunk.rows for chunk in more)
        if rows >= rows_min:
            yield batch(chunks, left.source, left.run)
            chunks, rows = [], 0
    if chunks:
        yield batch(chunks, left.source, left.run)


def make_parquet(left: OpenSegment, now_ms: int) -> Closed:
    """Make Parquet of a locked segment that covers something, and delete it. Raises OSError."""
    import google_crc32c
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from tarry.proto.ledger.arrow import SCHEMA

    name = stem(left.source, left.run, left.first_index, left.covered, left.segment)
    sink = pa.BufferOutputStream()
    begun_ms, first_ms, last_ms = None, None, 0
    kinds: Counter[str] = Counter()
    with pq.ParquetWriter(sink, SCHEMA, **_PARQUET) as writer:
        for group in _row_groups(left):
            writer.write_table(group)
            times = group["at_ms"]
            least, most = pc.min_max(times).as_py().values()
            begun_ms = times[0].as_py() if begun_ms is None else begun_ms
            first_ms = least if first_ms is None else min(first_ms, least)
            last_ms = max(last_ms, most)
            kinds.update({one["values"]: one["counts"] for one in group["kind"].value_counts().to_pylist()})
    data = sink.getvalue()
    folder = left.ledger / f"date={_date(now_ms if begun_ms is None else begun_ms)}"
    manifest = Manifest(
        version=VERSION,
        source=left.source,
        run=left.run,
        segment=left.segment,
        first_index=left.first_index,
        last_index=left.covered,
        first_at_ms=first_ms or 0,
        last_at_ms=last_ms,
        rows=kinds.total(),
        kinds=dict(kinds),
        bytes=data.size,
        crc32c=google_crc32c.value(data.to_pybytes()),
        filtered=left.filtered,
    )
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / f"{name}.parquet", memoryview(data))
    replace_file(folder / f"{name}.json", json.dumps(manifest).encode())
    left.path.unlink()
    return folder / f"{name}.parquet", manifest


def _row_groups(left: OpenSegment) -> Iterator[pa.Table]:
    import pyarrow as pa

    gathered: list[pa.RecordBatch] = []
    rows = 0
    for batch in open_rows(left, ROW_GROUP_ROWS):
        gathered.append(batch)
        rows += batch.num_rows
        if rows >= ROW_GROUP_ROWS:
            yield pa.Table.from_batches(gathered).unify_dictionaries()
            gathered, rows = [], 0
    if rows:
        yield pa.Table.from_batches(gathered).unify_dictionaries()


def _date(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).date().isoformat()
