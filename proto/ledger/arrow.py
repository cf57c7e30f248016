"""Arrow record batches of chunks of rows, without a statement per row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tarry.proto.ledger.chunk import Chunk
from tarry.proto.ledger.schema import ALWAYS, COLUMNS

_TYPES: Final = {
    "string": pa.dictionary(pa.int32(), pa.string()),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "bool": pa.bool_(),
}
SCHEMA: Final = pa.schema(
    [pa.field(name, _TYPES[of], nullable=name not in ALWAYS) for name, of in COLUMNS.items()]
)
PLAIN: Final = pa.schema(
    [pa.field(f.name, pa.string() if COLUMNS[f.name] == "string" else f.type) for f in SCHEMA]
)
"""The same columns with strings as such."""
_IPC: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


def batch(chunks: Sequence[Chunk], source: str, run: str) -> pa.RecordBatch:
    """Return the chunks' rows, in order, by SCHEMA."""
    counts = np.fromiter((chunk.rows for chunk in chunks), np.int64, len(chunks))
    starts = np.cumsum(counts) - counts
    columns = _Columns(chunks, counts, starts.tolist())
    hour, order_key = columns.filled("hour"), columns.filled("order_key")
    known = (hour >= 0) & (hour < 2**31)
    there = {"hour": known, "global_index": known, "order_key": order_key != 0}
    arrays: list[pa.Array] = []
    for name, of in COLUMNS.items():
        if name in {"source", "run"}:
            arrays.append(same(source if name == "source" else run, int(counts.sum())))
        elif name == "position":
            first = columns.scalars(name) - starts
            arrays.append(pa.array(np.arange(counts.sum()) + np.repeat(first, counts), pa.int32()))
        elif of == "string":
            arrays.append(columns.strings(name))
        else:
            arrays.append(columns.numbers(name, _TYPES[of], there.get(name)))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def to_stream(rows: pa.RecordBatch) -> bytes:
    """Return rows as an Arrow IPC stream of one batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_IPC) as stream:
        stream.write_batch(rows)
    payload: bytes = sink.getvalue().to_pybytes()
    return payload


def from_stream(payload: bytes) -> pa.RecordBatch:
    """Return the rows of such a stream, by SCHEMA. Raises pyarrow.ArrowInvalid."""
    with pa.ipc.open_stream(payload) as stream:
        rows = stream.read_next_batch()
    return rows if rows.schema.equals(SCHEMA) else rows.cast(SCHEMA)


def same(value: str, n: int) -> pa.Array:
    """Return a string column with one value in all n rows."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([value]))


class _Columns:
    def __init__(self, chunks: Sequence[Chunk], counts: NDArray[np.int64], starts: list[int]) -> None:
        self._values = dict(zip(Chunk._fields, zip(*chunks, strict=True), strict=True))
        self._counts = counts
        self._starts = starts

    def scalars(self, name: str) -> NDArray[np.int64]:
        """Return a column's values by chunk, 0 where they are an array or none."""
        values = self._values[name]
        return np.array([value if isinstance(value, int) else 0 for value in values], dtype=np.int64)

    def filled(self, name: str) -> NDArray[np.int64]:
        """Return a column's values by row, 0 where there is none."""
        filled = np.repeat(self.scalars(name), self._counts)
        self._fill(filled, self._values[name])
        return filled

    def numbers(self, name: str, of: pa.DataType, known: NDArray[np.bool_] | None) -> pa.Array:
        values = self._values[name]
        if all(value is None for value in values):
            return pa.nulls(int(self._counts.sum()), of)
        out = self.filled(name).astype(of.to_pandas_dtype(), copy=False)
        there = np.array([value is not None for value in values], dtype=np.bool_)
        mask = None if bool(there.all()) else np.repeat(~there, self._counts)
        if known is not None and not known.all():
            mask = ~known if mask is None else mask | ~known
        return pa.array(out, of, mask=mask)

    def strings(self, name: str) -> pa.Array:
        values = self._values[name]
        codes: dict[str, int] = {}
        firsts = [codes.setdefault(v, len(codes)) if isinstance(v, str) else -1 for v in values]
        if len(codes) == 1 and -1 not in firsts:
            return same(values[0], int(self._counts.sum()))
        out = np.repeat(np.array(firsts, dtype=np.int32), self._counts)
        for i in [i for i, value in enumerate(values) if isinstance(value, tuple)]:
            positions, names = values[i]
            lookup = np.array([codes.setdefault(each, len(codes)) for each in names], dtype=np.int32)
            out[self._starts[i] : self._starts[i] + len(positions)] = lookup[positions]
        indices = pa.array(out, mask=out < 0) if -1 in firsts else pa.array(out)
        return pa.DictionaryArray.from_arrays(indices, pa.array(list(codes), pa.string()))

    def _fill(self, out: NDArray[Any], values: Sequence[Any]) -> None:
        arrays = [isinstance(value, np.ndarray) for value in values]
        for start, value in compress(zip(self._starts, values, strict=True), arrays):
            out[start : start + len(value)] = value
