"""Records to columns, without a Python statement for each record.

    records   ┌ tag │ size │ body ┐┌ tag │ size │ key ┐┌ tag │ size │ body ┐ …     laid end to end
                ▲                    ▲
    a step of all records at once: read a tag and a size, note where the value lies, go on behind it

Every field of a record has a tag of one octet, and all but its times, which are gone over, are
length-delimited. So a step is some twenty array operations, and there are as many steps as the record with
most fields has. Values are then taken out of the octets by one call of Arrow a column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tarry.client.bulk.schema import COLUMNS, RECORD_COLUMNS
from tarry.proto.record_times import BORN_TAG, STORED_TAG
from tarry.proto.tarry_message_pb2 import Record

Places: TypeAlias = NDArray[np.int64]
_VARINT_BYTES: Final = 5
_TIME_BYTES: Final = 10
_LENGTH_DELIMITED: Final = 2
_NUMBERS: Final = {name: Record.DESCRIPTOR.fields_by_name[name].number for name in RECORD_COLUMNS}
_KEY, _VALUE = 1, 2
"""Fields of an entry of a map."""


class InvalidRecords(ValueError):
    """The octets are no records of this protocol."""


class Fields(NamedTuple):
    """Fields of many messages, columns of shape (n,), in the order in which they lie."""

    row: Places
    """The message that each belongs to."""
    number: NDArray[np.uint8]
    begin: Places
    """Where its value begins among the octets."""
    size: Places

    def of(self, number: int) -> Fields:
        """Return those of one number."""
        chosen = np.flatnonzero(self.number == number)
        return Fields(self.row[chosen], self.number[chosen], self.begin[chosen], self.size[chosen])


def columns_of(records: Sequence[bytes]) -> list[pa.Array]:
    """Return the columns RECORD_COLUMNS of n serialized records.

    Raises InvalidRecords.
    """
    octets = b"".join(records) + bytes(_VARINT_BYTES + 1)
    ends = np.cumsum(np.fromiter(map(len, records), np.int64, len(records)))
    begins = np.concatenate((np.zeros(min(1, len(records)), np.int64), ends[:-1]))
    data = np.frombuffer(octets, np.uint8)
    found = _fields(data, begins, ends)
    columns = []
    for name in RECORD_COLUMNS:
        of, kind = found.of(_NUMBERS[name]), COLUMNS.field(name).type
        if pa.types.is_map(kind):
            columns.append(_maps(data, octets, of, len(records)))
        elif pa.types.is_list(kind):
            values = _taken(octets, of.begin, of.size, pa.string())
            columns.append(pa.ListArray.from_arrays(_offsets(of.row, len(records)), values))
        else:
            columns.append(_singles(octets, of, len(records), kind))
    return columns


def _fields(data: NDArray[np.uint8], begin: Places, end: Places) -> Fields:
    """Return the fields of the messages that lie between places, shape (n,)."""
    steps: list[Fields] = []
    row, at = np.arange(len(begin)), begin
    while True:
        left = at < end
        if not bool(left.all()):
            row, at, end = row[left], at[left], end[left]
        if not len(row):
            break
        tag = data[at]
        times = np.flatnonzero((tag == BORN_TAG[0]) | (tag == STORED_TAG[0]))
        if len(times):  # the others wait for these
            at = at.copy()
            _, at[times] = _varints(data, at[times] + 1, _TIME_BYTES)
            if bool((at > end).any()):
                raise InvalidRecords("a time reaches beyond its record")
            continue
        if bool(((tag & 0x87) != _LENGTH_DELIMITED).any()):
            raise InvalidRecords("a field of a record is none of this protocol")
        size, value = _varints(data, at + 1)
        at = value + size
        if bool((at > end).any()):
            raise InvalidRecords("a field of a record reaches beyond it")
        steps.append(Fields(row, tag >> np.uint8(3), value, size))
    if not steps:
        none = np.empty(0, np.int64)
        return Fields(none, none.astype(np.uint8), none, none)
    if len(steps) == 1:
        return steps[0]
    joined = Fields(*map(np.concatenate, zip(*steps, strict=True)))
    order = np.argsort(joined.begin, kind="stable")
    return Fields(joined.row[order], joined.number[order], joined.begin[order], joined.size[order])


def _varints(data: NDArray[np.uint8], at: Places, octets_max: int = _VARINT_BYTES) -> tuple[Places, Places]:
    """Return the numbers that begin at places, shape (n,), and the places behind them."""
    octet = data[at]
    number, behind = (octet & 0x7F).astype(np.int64), at + 1
    more = np.flatnonzero(octet >= 0x80)
    for shift in range(7, 7 * octets_max, 7):
        if not len(more):
            return number, behind
        octet = data[behind[more]]
        number[more] |= (octet & 0x7F).astype(np.int64) << shift
        behind[more] += 1
        more = more[octet >= 0x80]
    if len(more):
        raise InvalidRecords("a number in a record does not end")
    return number, behind


def _taken(octets: bytes, begin: Places, size: Places, kind: pa.DataType) -> pa.Array:
    """Return values that lie between places, ascending, shape (n,).

    The array between them has each value and the gap behind it; every other element is a value.
    """
    if not len(begin):
        return pa.array([], kind)
    ends = np.empty(2 * len(begin), np.int32)
    ends[0::2], ends[1::2] = begin, begin + size
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(octets)]
    between = pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)
    values = between.take(pa.array(np.arange(0, len(ends), 2)))
    try:
        return values if pa.types.is_binary(kind) else values.cast(kind)
    except pa.ArrowInvalid as error:
        raise InvalidRecords(f"a text of a record is no UTF-8: {error}") from error


def _singles(octets: bytes, found: Fields, count: int, kind: pa.DataType) -> pa.Array:
    """Return the last value of each message, an empty one where it has none."""
    if not len(found.row):
        nothing = [None, pa.py_buffer(bytes(4 * (count + 1))), pa.py_buffer(b"")]
        return pa.Array.from_buffers(kind, count, nothing)
    begin, size = np.zeros(count, np.int64), np.zeros(count, np.int64)
    begin[found.row], size[found.row] = found.begin, found.size
    if len(found.row) < count:  # what has none lies, empty, behind the one before it
        begin = np.maximum(begin, np.maximum.accumulate(np.where(begin, begin + size, 0)) - size)
    return _taken(octets, begin, size, kind)


def _maps(data: NDArray[np.uint8], octets: bytes, found: Fields, count: int) -> pa.Array:
    entries = _fields(data, found.begin, found.begin + found.size)
    halves = [_singles(octets, entries.of(half), len(found.row), pa.string()) for half in (_KEY, _VALUE)]
    return pa.MapArray.from_arrays(_offsets(found.row, count), *halves)


def _offsets(row: Places, count: int) -> pa.Array:
    """Return where each of so many messages' values begin among those of all, and where the last's end."""
    counts = np.bincount(row, minlength=count)
    return pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
