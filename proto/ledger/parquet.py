"""Closing of segments: Parquet file and manifest of an open segment. Needs pyarrow.

``close`` runs in this process. ``close_apart`` starts another, which frees the 60 MB that pyarrow and a
segment take when it ends, leaves the interpreter of the first free, and ends with the process that asked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.abc import MetaPathFinder
from pathlib import Path
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
        return _close(left, now_ms)


def close_apart(left: OpenSegment, now_ms: int) -> Closed | None:
    """Do the same in another process. Raises OSError."""
    if not left.bytes:
        return close(left, now_ms)
    told = json.dumps({**asdict(left), "ledger": str(left.ledger)})
    command = [sys.executable, "-m", __name__, told, str(now_ms), str(os.getpid())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(done.stderr.strip().rpartition("\n")[2] or f"closing ended with {done.returncode}")
    path = Path(done.stdout.strip())
    return path, json.loads(path.with_suffix(".json").read_bytes())


class _NoPandas(MetaPathFinder):
    """Import hook that hides pandas, which pyarrow would otherwise load if it is installed: 0.3 s saved."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


def main() -> None:
    """Close the segment that another process names, unless that one has ended."""
    told, now_ms, parent = sys.argv[1:]
    fields = json.loads(told)
    left = OpenSegment(
        Path(fields["ledger"]), *(fields[n] for n in ("source", "run", "segment", "first_index"))
    )
    left.covered, left.rows, left.bytes = fields["covered"], fields["rows"], fields["bytes"]
    os.nice(5)
    sys.meta_path.insert(0, _NoPandas())
    with left.locked():
        if os.getppid() != int(parent):
            raise SystemExit("nobody waits for it any more")
        path, _ = _close(left, int(now_ms))
    print(path)


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


def _close(left: OpenSegment, now_ms: int) -> Closed:
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


if __name__ == "__main__":
    main()
