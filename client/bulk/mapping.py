"""Rows of a foreign source as messages: which of its columns are what, and what is wrong with a row.

source's columns ──► topic, due_ms, body …  in the form of an export ──► rows that can be sent
                                                                   └───► faults, by the row's number
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tarry.client.bulk.schema import COLUMNS
from tarry.client.bulk.values import TARGETS, Columns, InvalidSource
from tarry.proto.dead_letters import DEAD_LETTERS
from tarry.proto.reasons import Reason

DUE_MS_MAX: Final = 253_402_300_799_999
"""The last of the year 9999, the latest that a cluster stores."""
SECONDS_BELOW: Final = 100_000_000_000
"""Of ``auto``: a number below is one of seconds (until the year 5138), from there on of ms (from 1973)."""
DAY_S: Final = 86_400
IMPORTED_FROM: Final = "imported_from"
IMPORTED_ID: Final = "imported_id"
UNSURE: Final = "imported_unsure"
"""Properties that mark imported messages, where that is asked for; the last one what may be there twice."""
TOPIC: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"

_TEXT: Final = ("ordering_key", "idempotency_key")


class Fault(NamedTuple):
    """Reason why a row is not imported."""

    row: int
    reason: str
    text: str


class Chunk(NamedTuple):
    """Some consecutive rows of a source."""

    first: int
    """Number of the first, from 0."""
    size: int
    rows: NDArray[np.int64]
    """Numbers of those that are messages, ascending, shape (n,)."""
    messages: pa.RecordBatch
    """These, columns as of an export, shape (n,); `id` is the source's, empty where it has none."""
    faults: list[Fault]
    skipped: int
    """Of the others: overdue, where these are not wanted."""


def chunk_of(batch: pa.RecordBatch, first: int, columns: Columns, overdue_before_ms: int | None) -> Chunk:
    """Return the messages of a batch, which begins at a row; with ``overdue_before_ms`` none due before then.

    Raises InvalidSource.
    """
    count = len(batch)
    taken = {target: _column(batch, target, columns) for target in TARGETS}
    faults: dict[int, Fault] = {}

    def fault(rows: Sequence[int], reason: str, text: str) -> None:
        for row in rows:
            faults.setdefault(row, Fault(first + row, reason, text))

    topic = _topics(taken["topic"], count, columns)
    named = pc.fill_null(pc.match_substring_regex(topic, TOPIC), False)
    fault(_rows_without(named), Reason.TOPIC_INVALID, "the topic is missing, or no name of one")
    letters = pc.fill_null(pc.starts_with(topic, DEAD_LETTERS), False)
    fault(_rows_without(pc.invert(letters)), Reason.TOPIC_INVALID, "it is a topic of dead letters")
    due_ms = due_column(_needed(taken["due"], batch, "due"), columns.due_unit)
    told = pc.fill_null(pc.and_(pc.greater_equal(due_ms, 0), pc.less_equal(due_ms, DUE_MS_MAX)), False)
    text = "the due time is missing, none that can be read, or not of the years 1970 to 9999"
    fault(_rows_without(told), Reason.DUE_INVALID, text)
    body, readable = _bodies(_needed(taken["body"], batch, "body"), columns.body)
    fault(_rows_without(readable), Reason.RECORD_INVALID, f"the body is no {columns.body}")
    properties, readable = _properties(taken["properties"], count)
    fault(_rows_without(readable), Reason.RECORD_INVALID, "the properties are no JSON object")
    kept = np.ones(count, np.bool_)
    kept[list(faults)] = False
    skipped = np.zeros(count, np.bool_)
    if overdue_before_ms is not None:
        due = pc.fill_null(pc.less(due_ms, overdue_before_ms), False).to_numpy(zero_copy_only=False)
        skipped = kept & due
    made = [
        _texts(taken["id"], count),
        topic,
        due_ms,
        body,
        _lists(taken["tags"], count),
        _lists(taken["keys"], count),
        properties,
        *(_texts(taken[name], count) for name in _TEXT),
    ]
    rows = np.flatnonzero(kept & ~skipped)
    messages = pa.RecordBatch.from_arrays(made, COLUMNS.names)
    if len(rows) < count:
        messages = messages.take(pa.array(rows))
    messages = messages.cast(COLUMNS)
    if columns.mark:
        messages = marked(messages, [(IMPORTED_FROM, columns.mark), (IMPORTED_ID, messages.column("id"))])
    of_row = [faults[row] for row in sorted(faults)]
    return Chunk(first, count, rows + first, messages, of_row, int(skipped.sum()))


def marked(messages: pa.RecordBatch, more: Sequence[tuple[str, str | pa.Array]]) -> pa.RecordBatch:
    """Return messages with more properties, each of one value or a column of them."""
    count, column = len(messages), messages.column("properties")
    before = np.diff(column.offsets.to_numpy())
    begin = int(column.offsets[0].as_py()) if count else 0
    end = int(column.offsets[-1].as_py()) if count else 0
    names = [column.keys.slice(begin, end - begin)]
    values = [column.items.slice(begin, end - begin)]
    row = [np.repeat(np.arange(count), before)]
    for name, value in more:
        names.append(pa.array([name], pa.string()).take(pa.array(np.zeros(count, np.int64))))
        values.append(pa.array([value] * count, pa.string()) if isinstance(value, str) else value)
        row.append(np.arange(count))
    order = pa.array(np.argsort(np.concatenate(row), kind="stable"))
    offsets = pa.array(np.concatenate(([0], np.cumsum(before + len(more)))).astype(np.int32))
    joined = [pa.concat_arrays(parts).take(order) for parts in (names, values)]
    properties = pa.MapArray.from_arrays(offsets, *joined)
    return messages.set_column(messages.schema.get_field_index("properties"), "properties", properties)


def due_column(values: pa.Array, unit: str) -> pa.Int64Array:
    """Return due times in ms since the epoch; null where there is none, or none that can be read."""
    kind = values.type
    if pa.types.is_timestamp(kind):
        if kind.unit == "s":  # as ms it may be beyond 64 bits
            return _numbers(values.cast(pa.int64()), "s")
        return values.cast(pa.timestamp("ms", kind.tz), safe=False).cast(pa.int64())
    if pa.types.is_date32(kind):
        return _numbers(pc.multiply(values.cast(pa.int32()).cast(pa.int64()), DAY_S), "s")
    if pa.types.is_date64(kind):
        return values.cast(pa.int64())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _numbers(values, unit)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _read_times(values.cast(pa.string()), unit)
    if pa.types.is_null(kind):
        return values.cast(pa.int64())
    raise InvalidSource(f"the column of due times is of type {kind}: give numbers, timestamps or ISO 8601")


def _numbers(values: pa.Array, unit: str) -> pa.Int64Array:
    wide = values.cast(pa.float64(), safe=False)
    small = pc.less(pc.abs(wide), float(SECONDS_BELOW))
    seconds = small if unit == "auto" else pa.scalar(unit == "s")
    scaled = pc.round(pc.if_else(seconds, pc.multiply(wide, 1_000.0), wide))
    inside = pc.and_(pc.is_finite(scaled), pc.less(pc.abs(scaled), 2.0**53))
    if bool(pc.all(pc.fill_null(inside, True)).as_py()):
        return scaled.cast(pa.int64(), safe=False)
    return pc.if_else(inside, scaled, pa.scalar(None, pa.float64())).cast(pa.int64(), safe=False)


def _read_times(values: pa.StringArray, unit: str) -> pa.Int64Array:
    """Read texts: all as numbers where all are, else each by itself."""
    values = pc.utf8_trim_whitespace(values)
    numeric = pc.match_substring_regex(values, r"^-?\d{1,18}(\.\d{1,18})?$")
    if bool(pc.all(pc.fill_null(numeric, True)).as_py()):
        return _numbers(values.cast(pa.float64()), unit)
    return pa.array([_time_ms(text, unit) for text in values.to_pylist()], pa.int64())


def _time_ms(text: str | None, unit: str) -> int | None:
    if text is None:
        return None
    if re.fullmatch(r"-?\d{1,18}(\.\d{1,18})?", text):
        value: int | None = _numbers(pa.array([float(text)]), unit)[0].as_py()
        return value
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return int(time.replace(microsecond=0).timestamp()) * 1_000 + time.microsecond // 1_000


def _column(batch: pa.RecordBatch, target: str, columns: Columns) -> pa.Array | None:
    name = columns.names.get(target)
    if name is None:
        own = [target, "due_ms"] if target == "due" else [target]
        name = next((one for one in own if one in batch.schema.names), None)
    elif name not in batch.schema.names:
        raise InvalidSource(f"there is no column {name!r} for {target}: {_there(batch)}")
    if name is None:
        return None
    column = batch.column(batch.schema.names.index(name))
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _needed(column: pa.Array | None, batch: pa.RecordBatch, target: str) -> pa.Array:
    if column is None:
        text = f"no column is named {target!r}: say which it is with --column {target}=NAME; {_there(batch)}"
        raise InvalidSource(text)
    return column


def _there(batch: pa.RecordBatch) -> str:
    return f"there are {', '.join(batch.schema.names)}"


def _topics(column: pa.Array | None, count: int, columns: Columns) -> pa.StringArray:
    if columns.topic:
        return pa.array([columns.topic], pa.string()).take(pa.array(np.zeros(count, np.int64)))
    if column is None:
        raise InvalidSource("no column is named 'topic': give --topic NAME, or --column topic=NAME")
    return column.cast(pa.string())


def _texts(column: pa.Array | None, count: int) -> pa.StringArray:
    if column is None:
        return pa.array([""], pa.string()).take(pa.array(np.zeros(count, np.int64)))
    return pc.fill_null(column.cast(pa.string()), "")


def _lists(column: pa.Array | None, count: int) -> pa.ListArray:
    """Return lists of texts, without nulls; one text is divided at its commas."""
    if column is None or pa.types.is_null(column.type):
        return _empty(COLUMNS.field("tags").type, count)
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        texts = pc.list_flatten(column).cast(pa.string())
        row = pc.list_parent_indices(column)
        if texts.null_count:  # they name nothing
            there = pc.is_valid(texts)
            texts, row = texts.filter(there), row.filter(there)
        return pa.ListArray.from_arrays(_offsets(row, count), texts)
    texts = pc.fill_null(column.cast(pa.string()), "")
    divided = pc.split_pattern(texts, ",").to_pylist()
    return pa.array([[one for one in row if one] for row in divided], pa.list_(pa.string()))


def _properties(column: pa.Array | None, count: int) -> tuple[pa.MapArray, pa.BooleanArray]:
    """Return maps of texts, and which could be read: a map, a struct, or a text with a JSON object.

    A missing one is empty, and so is a missing value; what is no text is told as JSON. Raises InvalidSource.
    """
    kind = COLUMNS.field("properties").type
    if column is None or pa.types.is_null(column.type):
        return _empty(kind, count), _all(count)
    if pa.types.is_map(column.type):
        if column.null_count:
            column = pa.array([row or [] for row in column.to_pylist()], column.type)
        names, values = (half.cast(pa.string()) for half in (column.keys, column.items))
        offsets = pa.array(column.offsets.to_numpy())  # of their own, where the column is a part of another
        return pa.MapArray.from_arrays(offsets, names, pc.fill_null(values, "")), _all(count)
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if not (is_text or pa.types.is_struct(column.type)):
        text = f"the column of properties is of type {column.type}: give a map, a struct or JSON objects"
        raise InvalidSource(text)
    read = [_object(value) for value in column.to_pylist()]
    readable = pa.array([row is not None for row in read], pa.bool_())
    return pa.array([row or [] for row in read], kind), readable


def _object(value: Any) -> list[tuple[str, str]] | None:
    try:
        found = json.loads(value) if isinstance(value, str) and value else value or {}
        if not isinstance(found, dict):
            return None
        texts = [(name, _property(each)) for name, each in found.items()]
        json.dumps(texts, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError):
        return None
    return texts


def _property(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, default=str)


def _all(count: int) -> pa.BooleanArray:
    return pa.array([True]).take(pa.array(np.zeros(count, np.int64)))


def _offsets(row: pa.Array, count: int) -> pa.Int32Array:
    """Return where the values of each of so many rows begin; ``row``: each value's, ascending."""
    counts = np.bincount(row.to_numpy(zero_copy_only=False), minlength=count)
    return pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))


def _empty(kind: pa.DataType, count: int) -> pa.Array:
    return pa.array([[]], kind).take(pa.array(np.zeros(count, np.int64)))


def _bodies(column: pa.Array, encoding: str) -> tuple[pa.BinaryArray, pa.BooleanArray]:
    """Return bodies, and which of them could be read; a missing one is empty."""
    kind = column.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    binaries = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_null)
    if not is_text and not any(check(kind) for check in binaries):
        column = column.cast(pa.string())
    column = pc.fill_null(column.cast(pa.binary()), b"")
    if encoding == "text":
        return column, _all(len(column))
    decode = _DECODERS[encoding]
    texts = column.to_pylist()
    try:
        return pa.array(list(map(decode, texts)), pa.binary()), pc.is_valid(column)
    except ValueError:
        decoded = [_decoded(decode, text) for text in texts]
        readable = pa.array([one is not None for one in decoded])
        return pa.array([one or b"" for one in decoded], pa.binary()), readable


def _base64(text: bytes) -> bytes:
    return base64.b64decode(text, validate=True)


_DECODERS: Final[dict[str, Callable[[bytes], bytes]]] = {"base64": _base64, "hex": binascii.unhexlify}


def _decoded(decode: Callable[[bytes], bytes], text: bytes) -> bytes | None:
    try:
        return decode(text)
    except ValueError:
        return None


def _rows_without(flags: pa.BooleanArray) -> list[int]:
    wanting: list[int] = np.flatnonzero(~flags.to_numpy(zero_copy_only=False)).tolist()
    return wanting
