"""Rows of a foreign source as messages: which of its columns are what, and what is wrong with a row.

source's columns ──► topic, due_ms, body …  in the form of an export ──► rows that can be sent
                                                                   └───► faults, by the row's number
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

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
        _properties(taken["properties"], count),
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
        return values.cast(pa.timestamp("ms", kind.tz), safe=False).cast(pa.int64())
    if pa.types.is_date(kind):
        return values.cast(pa.timestamp("ms")).cast(pa.int64())
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
    numeric = pc.match_substring_regex(values, r"^-?\d+(\.\d+)?$")
    if bool(pc.all(pc.fill_null(numeric, True)).as_py()):
        return _numbers(values.cast(pa.float64()), unit)
    return pa.array([_time_ms(text, unit) for text in values.to_pylist()], pa.int64())


def _time_ms(text: str | None, unit: str) -> int | None:
    if text is None:
        return None
    if re.fullmatch(r"-?\d{1,18}(\.\d+)?", text):
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
    return None if name is None else batch.column(batch.schema.names.index(name))


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
    """Return lists of texts; one text is divided at its commas."""
    if column is None or pa.types.is_null(column.type):
        return _empty(COLUMNS.field("tags").type, count)
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        filled = pc.fill_null(column, pa.scalar([], column.type))
        return filled.cast(pa.list_(pa.string()))
    texts = pc.fill_null(column.cast(pa.string()), "")
    divided = pc.split_pattern(texts, ",").to_pylist()
    return pa.array([[one for one in row if one] for row in divided], pa.list_(pa.string()))


def _properties(column: pa.Array | None, count: int) -> pa.MapArray:
    kind = COLUMNS.field("properties").type
    if column is None or not pa.types.is_map(column.type):
        return _empty(kind, count)
    if column.null_count:
        return pa.array([row or [] for row in column.to_pylist()], kind)
    return column.cast(kind)


def _empty(kind: pa.DataType, count: int) -> pa.Array:
    return pa.array([[]], kind).take(pa.array(np.zeros(count, np.int64)))


def _bodies(column: pa.Array, encoding: str) -> tuple[pa.BinaryArray, pa.BooleanArray]:
    """Return bodies, and which of them could be read; a missing one is empty."""
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if pa.types.is_null(column.type):
        column = column.cast(pa.binary())
    elif not is_text and not pa.types.is_binary(column.type) and not pa.types.is_large_binary(column.type):
        column = column.cast(pa.string())
    column = pc.fill_null(column.cast(pa.binary()), b"")
    if encoding == "text" or not is_text:
        return column, pa.array([True]).take(pa.array(np.zeros(len(column), np.int64)))
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
