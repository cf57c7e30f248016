"""Batches of an import: the same ones at each start, whatever the source is read in.

    chunks of the source ──► batches: the next rows, up to so many, or bytes, or topics ──► requests, 1 or 2

Where a batch ends follows from the rows in it alone, so a start that goes on from the first row of a batch
makes the same batches as the one before, with the same numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tarry.client.bulk.mapping import Chunk, Fault
from tarry.client.bulk.record_bytes import ends_of, framed_records, octets_of, records_of, tag_masks
from tarry.proto.tarry_log_pb2 import ScheduleColumns

SEQUENCES: Final = 2
"""Of a batch: one for messages without idempotency keys, one for those with them, which share no request."""

TOPICS_MAX: Final = 256
"""Of a batch; a cluster takes 1,024 by default."""
SPAN: Final = 8
"""Rows that are looked at for a batch, as a multiple of its messages: those that are none take memory too."""

MESSAGE_BYTES: Final = 24
FIELD_BYTES: Final = 4
"""Of a message beside its texts, and of one of several texts, at most as a rule."""


class Batch(NamedTuple):
    """Some consecutive rows of a source."""

    number: int
    """From 0."""
    begin: int
    end: int
    """Behind the last row that was looked at: rows before it that are not in the batch are none's."""
    rows: NDArray[np.int64]
    """Shape (n,)."""
    messages: pa.RecordBatch
    """Shape (n,)."""
    faults: list[Fault]
    skipped: int


class Request(NamedTuple):
    """A ScheduleBatchRequest, serialized."""

    sequence: int
    places: NDArray[np.int64]
    """Positions in the batch of its messages, shape (m,)."""
    octets: bytes


class Gathered(NamedTuple):
    """Rows of some chunks that are in no batch yet."""

    begin: int
    end: int
    rows: NDArray[np.int64]
    messages: pa.RecordBatch
    faults: list[Fault]
    skipped: int


def batches(
    chunks: Iterable[Chunk], rows_max: int, bytes_max: int, begin: int = 0, number: int = 0
) -> Iterator[Batch]:
    """Yield the batches of chunks, which begin at a row that is the first of the batch of that number.

    A batch has ``rows_max`` messages, of TOPICS_MAX topics, and ``bytes_max`` of them at most; a larger
    message is alone in one.
    """
    left: Gathered | None = None
    sizes = np.empty(0, np.int64)
    for chunk in chunks:
        end = chunk.first + chunk.size
        more = Gathered(end - chunk.size, end, chunk.rows, chunk.messages, chunk.faults, chunk.skipped)
        left = more if left is None else _joined(left, more)
        sizes = np.concatenate((sizes, _sizes(chunk.messages)))
        while True:
            count = _fits(left.messages, sizes, rows_max, bytes_max)
            end = left.begin + SPAN * rows_max
            if count < len(sizes):
                end = min(end, int(left.rows[count]))
            elif end >= left.end:
                break  # more may come
            count = min(count, int(np.searchsorted(left.rows, end)))
            taken, left = _divided(left, count, end)
            sizes = sizes[count:]
            yield Batch(number, *taken)
            number += 1
    if left is not None and left.end > left.begin:
        yield Batch(number, *left)


def _fits(messages: pa.RecordBatch, sizes: NDArray[np.int64], rows_max: int, bytes_max: int) -> int:
    """Return how many of the first messages make a batch."""
    ends = np.cumsum(sizes[: rows_max + 1])
    count = min(rows_max, int(np.searchsorted(ends, bytes_max, side="right")))
    topic = pc.dictionary_encode(messages.column("topic").slice(0, count)).indices.to_numpy()
    beyond = np.flatnonzero(topic >= TOPICS_MAX)  # numbered as they come
    return int(beyond[0]) if len(beyond) else min(len(sizes), max(1, count))


def _joined(left: Gathered, more: Gathered) -> Gathered:
    messages = pa.Table.from_batches([left.messages, more.messages]).combine_chunks().to_batches()
    return Gathered(
        left.begin,
        more.end,
        np.concatenate((left.rows, more.rows)),
        messages[0] if messages else more.messages,
        left.faults + more.faults,
        left.skipped + more.skipped,
    )


def _divided(left: Gathered, count: int, end: int) -> tuple[Gathered, Gathered]:
    """Return the first messages, with the other rows up to an end, and what is behind."""
    faults = [fault for fault in left.faults if fault.row < end]
    others = [fault for fault in left.faults if fault.row >= end]
    skipped = end - left.begin - count - len(faults)
    taken = Gathered(left.begin, end, left.rows[:count], left.messages.slice(0, count), faults, skipped)
    rest = left.messages.slice(count)
    return taken, Gathered(end, left.end, left.rows[count:], rest, others, left.skipped - skipped)


def _sizes(messages: pa.RecordBatch) -> NDArray[np.int64]:
    """Return roughly what bytes each message takes in a request, shape (n,), whatever is beside it."""
    sizes = np.full(len(messages), MESSAGE_BYTES, np.int64)
    for name in ("body", "ordering_key", "idempotency_key"):
        sizes += pc.binary_length(messages.column(name)).to_numpy()
    properties = messages.column("properties")
    for column, values in (
        *((messages.column(name), messages.column(name).values) for name in ("tags", "keys")),
        (properties, properties.keys),
        (properties, properties.items),
    ):
        if len(values) and len(messages):
            ends = np.concatenate(([0], np.cumsum(pc.binary_length(values).to_numpy() + FIELD_BYTES)))
            sizes += np.diff(ends[column.offsets.to_numpy()])
    return sizes


def requests(batch: Batch, producer: str, without: Collection[int] = ()) -> list[Request]:
    """Return the requests of a batch, without rows that were refused; none where nothing is left."""
    places = np.arange(len(batch.rows))
    if without:
        places = places[~np.isin(batch.rows, np.fromiter(without, np.int64, len(without)))]
    keys = pc.binary_length(batch.messages.column("idempotency_key")).to_numpy(zero_copy_only=False)
    keyed = keys[places] > 0
    first = SEQUENCES * batch.number + 2  # 1 is the probe's
    made = []
    for sequence, some in ((first, places[~keyed]), (first + 1, places[keyed])):
        if len(some):
            whole = len(some) == len(batch.rows)
            messages = batch.messages if whole else batch.messages.take(pa.array(some))
            made.append(Request(sequence, some, _octets(messages, producer, sequence)))
    return made


def _octets(messages: pa.RecordBatch, producer: str, sequence: int) -> bytes:
    """Return the request for n messages: columns as octets, and records as they lie end to end."""
    coded = pc.dictionary_encode(messages.column("topic"))
    masks = tag_masks(messages)
    topics = coded.dictionary.to_pylist()
    columns = ScheduleColumns(
        producer=producer,
        sequence=sequence,
        topics=topics,
        topic=coded.indices.to_numpy().astype("<u4").tobytes() if len(topics) > 1 else b"",
        due_ms=messages.column("due_ms").to_numpy().astype("<i8").tobytes(),
        tag_mask=masks.astype("<u8").tobytes() if masks is not None and masks.any() else b"",
    )
    framed = framed_records(records_of(messages))
    ends = ends_of(framed)
    return columns.SerializeToString() + bytes(octets_of(framed)[int(ends[0]) : int(ends[-1])])
