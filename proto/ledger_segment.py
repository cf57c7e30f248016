"""A ledger's files: the open segment, closed ones with their manifests, and what a crash left.

    open/<run>-<segment>-<first_index>.rows    frames: length, crc32c, covered index, Arrow stream
                    │ close
                    ▼
    date=…/<stem>.parquet, then <stem>.json

A frame's rows are there when its append returns, and stay so over the end of the process; over a power
cut, once synced. All of this is for a thread, one call at a time for each open segment.
"""

from __future__ import annotations

import json
import os
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

import google_crc32c
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tarry.proto.ledger_batch import SCHEMA, from_stream, to_stream
from tarry.proto.ledger_rows import STRINGS, VERSION, Manifest, stem

_FRAME: Final = struct.Struct("<IIq")
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


Closed: TypeAlias = tuple[Path, Manifest]
"""A closed segment: its Parquet file, and what its manifest says."""


@dataclass(slots=True)
class OpenSegment:
    """The rows of a segment that is not closed."""

    ledger: Path
    source: str
    run: str
    segment: int
    first_index: int
    covered: int = field(init=False)
    rows: int = 0
    bytes: int = 0
    dirty: bool = False

    def __post_init__(self) -> None:
        self.covered = self.first_index

    @property
    def path(self) -> Path:
        """Where the frames are."""
        return self.ledger / "open" / f"{self.run}-{self.segment}-{self.first_index}.rows"

    def append(self, batch: pa.RecordBatch | None, covered: int) -> None:
        """Write rows, and that all indices up to ``covered`` are told of.

        Raises:
            OSError: nothing was written, and the segment is as it was.
        """
        payload = to_stream(batch) if batch is not None and batch.num_rows else b""
        head = _FRAME.pack(len(payload), _crc(payload, covered), covered)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            try:
                file.write(head)
                file.write(payload)
                file.flush()
            except OSError:
                with suppress(OSError):
                    os.ftruncate(file.fileno(), self.bytes)
                raise
            self.bytes += len(head) + len(payload)
            self.rows += batch.num_rows if batch is not None else 0
            self.covered = covered
            self.dirty = True

    def sync(self) -> None:
        """Make what was written last over a power cut. Raises OSError."""
        if self.dirty:
            with self.path.open("rb") as file:
                os.fsync(file.fileno())
            _sync_folder(self.path.parent)
            self.dirty = False


def recover(ledger: Path, source: str) -> list[OpenSegment]:
    """Return the open segments that the last run left, in order, each cut behind its last whole frame."""
    found = []
    for path in (ledger / "open").glob("*.rows"):
        run, segment, first = path.stem.rsplit("-", 2)
        left = OpenSegment(ledger, source, run, int(segment), int(first))
        for covered, batch, end in _frames(path):
            left.covered, left.bytes = covered, end
            left.rows += batch.num_rows
        os.truncate(path, left.bytes)
        found.append(left)
    return sorted(found, key=lambda left: left.segment)


def close(left: OpenSegment, now_ms: int) -> Closed | None:
    """Make an open segment a closed one; None where it covers nothing. Doing it again does no harm.

    Raises:
        OSError: the disk did not take it; the open segment is still there.
    """
    if not left.bytes:
        left.path.unlink(missing_ok=True)
        return None
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
    )
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / f"{name}.parquet", data)
    _write(folder / f"{name}.json", json.dumps(manifest).encode())
    left.path.unlink()
    return folder / f"{name}.parquet", manifest


def open_rows(left: OpenSegment) -> Iterator[pa.RecordBatch]:
    """Yield an open segment's rows so far."""
    return (batch for _, batch, end in _frames(left.path) if end <= left.bytes)


def _row_groups(left: OpenSegment) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    rows = 0
    for batch in open_rows(left):
        gathered.append(batch)
        rows += batch.num_rows
        if rows >= ROW_GROUP_ROWS:
            yield pa.Table.from_batches(gathered).unify_dictionaries()
            gathered, rows = [], 0
    if rows:
        yield pa.Table.from_batches(gathered).unify_dictionaries()


def closed(ledger: Path) -> list[Closed]:
    """Return the closed segments' Parquet files and manifests, in the order of their writing."""
    found = []
    for path in ledger.glob("date=*/*.json"):
        with suppress(FileNotFoundError):  # deleted meanwhile
            found.append((path.with_suffix(".parquet"), Manifest(json.loads(path.read_bytes()))))  # type: ignore[misc]
    return sorted(found, key=lambda one: one[1]["segment"])


def delete(parquet: Path) -> None:
    """Delete a closed segment: its manifest first, for without one it is none. Raises OSError."""
    parquet.with_suffix(".json").unlink(missing_ok=True)
    parquet.unlink(missing_ok=True)
    with suppress(OSError):  # not the last of its day
        parquet.parent.rmdir()


def _crc(payload: bytes, covered: int) -> int:
    value = google_crc32c.extend(google_crc32c.value(payload), covered.to_bytes(8, "little", signed=True))
    return int(value)


def _frames(path: Path) -> Iterator[tuple[int, Any, int]]:
    """Yield (covered index, batch, where the next frame begins) of every whole frame."""
    data, at = path.read_bytes(), 0
    while at + _FRAME.size <= len(data):
        size, crc, covered = _FRAME.unpack_from(data, at)
        at += _FRAME.size
        payload = data[at : at + size]
        if len(payload) < size or _crc(payload, covered) != crc:
            return
        at += size
        if size:
            yield covered, from_stream(payload), at
        else:
            yield covered, _NOTHING, at


_NOTHING: Final = pa.RecordBatch.from_pylist([], SCHEMA)


def _date(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).date().isoformat()


def _write(path: Path, data: bytes | pa.Buffer) -> None:
    side = path.with_name(f".{path.name}.tmp")
    try:
        with side.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        side.replace(path)
    except OSError:
        with suppress(OSError):
            side.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
