"""Columns to records, without a Python statement for each record: each field is joined by Arrow.

tags    [a, b]  ──► 0a 01 a 0a 01 b ┐
body    xyz     ──► 22 03 xyz       ├──► record ──► 4a 0e record    as a request has it
…                                   ┘
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarry.client.bulk.schema import COLUMNS, RECORD_COLUMNS
from tarry.client.records import varint
from tarry.proto.tags import tag_mask
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_producer_pb2 import ScheduleBatchRequest

_TAGS: Final = {
    name: bytes([Record.DESCRIPTOR.fields_by_name[name].number << 3 | 2]) for name in RECORD_COLUMNS
}
_RECORDS_TAG: Final = bytes([ScheduleBatchRequest.RECORDS_FIELD_NUMBER << 3 | 2])
_KEY_TAG, _VALUE_TAG = b"\x0a", b"\x12"
_NOTHING: Final = pa.scalar(b"", pa.binary())


def records_of(rows: pa.RecordBatch) -> pa.BinaryArray:
    """Return the n serialized records of rows with the columns RECORD_COLUMNS, none of which is null."""
    fields = []
    for name in RECORD_COLUMNS:
        column, kind = rows.column(name), COLUMNS.field(name).type
        if pa.types.is_map(kind):
            offsets, (keys, items) = _inner(column, column.keys, column.items)
            if len(keys):
                entries = _joined(_framed(keys, _KEY_TAG), _framed(items, _VALUE_TAG))
                fields.append(_lists(offsets, _framed(entries, _TAGS[name], empty=True)))
        elif pa.types.is_list(kind):
            offsets, (values,) = _inner(column, column.values)
            if len(values):
                fields.append(_lists(offsets, _framed(values, _TAGS[name], empty=True)))
        elif name == "body" or bool(pc.any(pc.not_equal(pc.binary_length(column), 0)).as_py()):
            fields.append(_framed(column, _TAGS[name]))
    return fields[0] if len(fields) == 1 else _joined(*fields)


def framed_records(records: pa.BinaryArray) -> pa.BinaryArray:
    """Return records as fields of a ScheduleBatchRequest: laid end to end they are a part of one."""
    return _framed(records, _RECORDS_TAG, empty=True)


def tag_masks(rows: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.uint64]] | None:
    """Return the masks of rows, shape (n,); None where no row has a tag.

    Costs a Python call for each distinct set of tags, of which there are few as a rule.
    """
    tags = rows.column("tags")
    offsets, (values,) = _inner(tags, tags.values)
    if not len(values):
        return None
    ordered = pc.not_equal(pc.binary_length(rows.column("ordering_key")), 0)
    joined = _lists(offsets, _framed(values, _TAGS["tags"], empty=True))
    lane = pc.if_else(ordered, pa.scalar(b"\x01", pa.binary()), pa.scalar(b"\x00", pa.binary()))
    coded = pc.dictionary_encode(_joined(lane, joined))
    masks = np.array([_mask_of(text) for text in coded.dictionary.to_pylist()], np.uint64)
    column: np.ndarray[tuple[int], np.dtype[np.uint64]] = masks[coded.indices.to_numpy(zero_copy_only=False)]
    return column


def _mask_of(text: bytes) -> int:
    return tag_mask(Record.FromString(text[1:]).tags, "ordered" if text[0] else "")


def ends_of(values: pa.BinaryArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return where each of n values begins in ``octets_of``, and where the last ends, shape (n + 1,)."""
    ends = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    return ends.astype(np.int64)


def octets_of(values: pa.BinaryArray) -> memoryview:
    """Return the octets that the values lie in."""
    data = values.buffers()[2]
    return memoryview(data) if data is not None else memoryview(b"")


def _framed(values: pa.Array, tag: bytes, *, empty: bool = False) -> pa.BinaryArray:
    """Return values behind a tag and their sizes; ``empty``: an empty one, too, else it stays empty."""
    values = values.cast(pa.binary())
    sizes = pc.binary_length(values).to_numpy(zero_copy_only=False)
    if not len(sizes):
        return values
    if int(sizes.min()) == int(sizes.max()):
        size = int(sizes[0])
        head = pa.scalar(tag + varint(size) if size or empty else b"", pa.binary())
        return pc.binary_join_element_wise(head, values, _NOTHING)
    distinct, at = np.unique(sizes, return_inverse=True)
    heads = [tag + varint(size) if size or empty else b"" for size in distinct.tolist()]
    return _joined(pa.array(heads, pa.binary()).take(pa.array(at)), values)


def _joined(*parts: pa.BinaryArray) -> pa.BinaryArray:
    return pc.binary_join_element_wise(*parts, _NOTHING)


def _inner(column: pa.Array, *values: pa.Array) -> tuple[pa.Int32Array, list[pa.Array]]:
    """Return where each list of a column begins in its values, and these, without those of rows beside it.

    A column that is a part of a larger one has the values of that.
    """
    offsets = column.offsets.to_numpy()
    begin, end = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    return pa.array((offsets - begin).astype(np.int32)), [one.slice(begin, end - begin) for one in values]


def _lists(offsets: pa.Int32Array, values: pa.BinaryArray) -> pa.BinaryArray:
    """Return the values of each list laid end to end."""
    return pc.binary_join(pa.ListArray.from_arrays(offsets, values), _NOTHING)
