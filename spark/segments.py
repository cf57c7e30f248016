"""Writer of ledger segments from columns, for generated ledgers and tests."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tarry.proto.ledger.schema import COLUMNS, STRINGS, VERSION, Manifest, stem

_ARROW: Final[dict[str, pa.DataType]] = {
    "string": pa.dictionary(pa.int32(), pa.string()),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "bool": pa.bool_(),
}

SCHEMA: Final = pa.schema([pa.field(name, _ARROW[of]) for name, of in COLUMNS.items()])


@dataclass(frozen=True, slots=True)
class Names:
    """A string column: for each row the place of its name; -1: null."""

    places: np.ndarray[Any, np.dtype[np.int32]]
    names: Sequence[str]

    def array(self) -> pa.Array:
        """Return the column."""
        return pa.DictionaryArray.from_arrays(
            pa.array(self.places, mask=self.places < 0), pa.array(self.names, pa.string())
        )


def table(columns: Mapping[str, pa.Array]) -> pa.Table:
    """Return rows of the ledger's schema; a column that is not named is null."""
    rows = len(next(iter(columns.values())))
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(rows, field.type)
        for field in SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def table_of(rows: Sequence[Mapping[str, object]]) -> pa.Table:
    """Return the same from rows as mappings."""
    plain = pa.schema([(f.name, pa.string() if f.name in STRINGS else f.type) for f in SCHEMA])
    return pa.Table.from_pylist([dict(row) for row in rows], schema=plain).cast(SCHEMA)


def write(
    ledger: Path, rows: pa.Table, source: str, run: str, first_index: int, last_index: int, segment: int
) -> Path:
    """Write a closed segment, its manifest last; return the Parquet file's path."""
    count = rows.num_rows
    rows = rows.set_column(1, SCHEMA.field("source"), _same(source, count))
    rows = rows.set_column(rows.schema.get_field_index("run"), SCHEMA.field("run"), _same(run, count))
    at_ms = rows.column("at_ms").to_numpy() if count else np.zeros(1, np.int64)
    first_at_ms, last_at_ms = int(at_ms.min()), int(at_ms.max())
    day = datetime.fromtimestamp(first_at_ms // 1_000, UTC).date()
    folder = ledger / f"date={day.isoformat()}"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{stem(source, run, first_index, last_index, segment)}.parquet"
    pq.write_table(rows, file, compression="zstd", compression_level=1)
    kinds = Counter[str]()
    for chunk in rows.column("kind").chunks:
        for one in chunk.value_counts().to_pylist():
            kinds[one["values"]] += one["counts"]
    content = file.read_bytes()
    manifest = Manifest(
        version=VERSION, source=source, run=run, segment=segment, first_index=first_index,
        last_index=last_index, first_at_ms=first_at_ms, last_at_ms=last_at_ms, rows=count,
        kinds=dict(kinds), bytes=len(content), crc32c=google_crc32c.value(content),
        filtered=False,
    )  # fmt: skip
    file.with_suffix(".json").write_text(json.dumps(manifest))
    return file


def _same(name: str, rows: int) -> pa.Array:
    return Names(np.zeros(rows, np.int32), [name]).array()
