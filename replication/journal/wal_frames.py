"""Frames and segments of the write-ahead log, as bytes.

    segment   header, frames, zeros up to its length
    frame     header, body: head, size of each entry (u32), entries; 1 to 64 bytes of 0xff, up to a
              multiple of 64: no sector at a body's end is zeros by itself

Both headers have 64 bytes, so that each is in one sector:

    segment   magic 8 bytes, crc32c of the rest u32, version u32, sequence of the first frame u64,
              crc of the frame before it u32, mark u64 (random), length of the file u64, zeros
    frame     mark of the segment u64, crc32c of the rest u32, crc32c of the body u32,
              crc of the frame before u32, bytes of the body u32, sequence u64,
              delete_from u64, delete_below u64, first index u64, bytes of the head u32, entries u32

The crc of a frame is its header's, which counts the body's and that of the frame before: frames chain.
The mark is not known to who writes messages, so no message can contain a frame of its log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

import google_crc32c

from tarry.replication.journal.records import Batch, JournalDamaged, JournalMisused

HEADER_BYTES: Final = 64
ALIGNED_BYTES: Final = HEADER_BYTES
SECTOR_BYTES: Final = 512

_MAGIC: Final = b"tarrywal"
VERSION: Final = 1
_SEGMENT: Final = struct.Struct("<8sI")
_SEGMENT_REST: Final = struct.Struct("<IQIQQ20x")
_FRAME: Final = struct.Struct("<QI")
_FRAME_REST: Final = struct.Struct("<IIIQQQQII")
_NONE: Final = 2**64 - 1
_FILL: Final = b"\xff"


class SegmentHeader(NamedTuple):
    version: int
    sequence: int
    """Of its first frame."""
    crc_before: int
    mark: int
    size_bytes: int
    """Of the file, allocated when it was made."""


class FrameHeader(NamedTuple):
    body_crc: int
    crc_before: int
    body_bytes: int
    sequence: int
    delete_from: int
    delete_below: int
    first_index: int
    head_bytes: int
    entries: int


@dataclass(frozen=True, slots=True)
class Frame:
    """One batch as it is in a segment; ``starts`` and ``end`` count from the segment's beginning."""

    crc: int
    fields: FrameHeader
    head: bytes
    sizes: Sequence[int]
    starts: Sequence[int]
    end: int

    @property
    def delete_from(self) -> int | None:
        return None if self.fields.delete_from == _NONE else self.fields.delete_from

    @property
    def delete_below(self) -> int | None:
        return None if self.fields.delete_below == _NONE else self.fields.delete_below


def encode_segment(header: SegmentHeader) -> bytes:
    """Return the header of a segment."""
    rest = _SEGMENT_REST.pack(*header)
    return _SEGMENT.pack(_MAGIC, google_crc32c.value(rest)) + rest


def decode_segment(data: bytes, size_bytes: int) -> SegmentHeader:
    """Return the fields of the header of a segment that has so many bytes. Raises JournalDamaged."""
    rest = data[_SEGMENT.size : HEADER_BYTES]
    if len(data) < HEADER_BYTES or _SEGMENT.unpack_from(data) != (_MAGIC, google_crc32c.value(rest)):
        raise JournalDamaged("the header of a segment: checksum")
    header = SegmentHeader(*_SEGMENT_REST.unpack(rest))
    if header.version != VERSION:
        raise JournalDamaged(f"a segment of version {header.version}; this tarry reads {VERSION}")
    if header.size_bytes != size_bytes:
        raise JournalDamaged(f"a segment of {size_bytes} bytes, made with {header.size_bytes}")
    return header


def encode_frame(batch: Batch, sequence: int, crc_before: int, mark: int) -> tuple[bytes, Frame]:
    """Return the bytes of a frame, and what they have; its places count from its begin.

    Raises JournalMisused.
    """
    count, first = len(batch.puts), batch.puts[0][0] if batch.puts else 0
    if count and batch.puts[-1][0] - first != count - 1:
        raise JournalMisused(f"{count} entries from {first} to {batch.puts[-1][0]}")
    values = [value for _, value in batch.puts]
    sizes = [len(value) for value in values]
    body = b"".join((batch.head, struct.pack(f"<{count}I", *sizes), *values))
    fields = FrameHeader(
        google_crc32c.value(body),
        crc_before,
        len(body),
        sequence,
        _NONE if batch.delete_from is None else batch.delete_from,
        _NONE if batch.delete_below is None else batch.delete_below,
        first,
        len(batch.head),
        count,
    )
    rest = _FRAME_REST.pack(*fields)
    crc = google_crc32c.value(rest)
    data = b"".join((_FRAME.pack(mark, crc), rest, body, _FILL * _fill_bytes(len(body))))
    return data, _frame(crc, fields, batch.head, sizes, 0)


def decode_frame(data: bytes, at: int, mark: int) -> Frame | None:
    """Return the frame at a place of a segment; None: it fails its checks."""
    fields = _fields(data, at, mark)
    if fields is None:
        return None
    start = at + HEADER_BYTES
    body = data[start : start + fields.body_bytes]
    if len(body) < fields.body_bytes or google_crc32c.value(body) != fields.body_crc:
        return None
    sizes = struct.unpack_from(f"<{fields.entries}I", body, fields.head_bytes)
    return _frame(_FRAME.unpack_from(data, at)[1], fields, body[: fields.head_bytes], sizes, at)


def frames(data: bytes, header: SegmentHeader, end: int | None) -> Iterator[Frame]:
    """Return the frames of a segment, up to the first that fails its checks, or has the sequence ``end``.

    Raises JournalDamaged.
    """
    at, sequence, crc = HEADER_BYTES, header.sequence, header.crc_before
    while sequence != end and (frame := decode_frame(data, at, header.mark)) is not None:
        if (frame.fields.sequence, frame.fields.crc_before) != (sequence, crc):
            raise JournalDamaged(f"frame {frame.fields.sequence} does not follow frame {sequence - 1}")
        yield frame
        at, sequence, crc = frame.end, sequence + 1, frame.crc


def is_unfinished(data: bytes, at: int, mark: int) -> bool:
    """Return whether what fails its checks at a place is of a write that never ended, not damage."""
    fields = _fields(data, at, mark)
    if fields is None:
        lacks = not any(data[at : at + HEADER_BYTES])
    else:
        end = min(at + HEADER_BYTES + fields.body_bytes + _fill_bytes(fields.body_bytes), len(data))
        edges = [at, *range(at - at % SECTOR_BYTES + SECTOR_BYTES, end, SECTOR_BYTES), end]
        lacks = any(not any(data[start:stop]) for start, stop in pairwise(edges))
    return lacks and not _frame_follows(data, at + HEADER_BYTES, mark)


def _fill_bytes(body_bytes: int) -> int:
    return ALIGNED_BYTES - body_bytes % ALIGNED_BYTES


def _frame(crc: int, fields: FrameHeader, head: bytes, sizes: Sequence[int], at: int) -> Frame:
    start = at + HEADER_BYTES
    starts = list(accumulate(sizes, initial=start + fields.head_bytes + 4 * fields.entries))
    end = start + fields.body_bytes + _fill_bytes(fields.body_bytes)
    return Frame(crc, fields, head, sizes, starts[:-1], end)


def _fields(data: bytes, at: int, mark: int) -> FrameHeader | None:
    rest = data[at + _FRAME.size : at + HEADER_BYTES]
    if at + HEADER_BYTES > len(data) or _FRAME.unpack_from(data, at) != (mark, google_crc32c.value(rest)):
        return None
    return FrameHeader(*_FRAME_REST.unpack(rest))


def _frame_follows(data: bytes, start: int, mark: int) -> bool:
    begins = mark.to_bytes(8, "little")
    at = data.find(begins, start)
    while at >= 0:
        if at % ALIGNED_BYTES == 0 and _fields(data, at, mark) is not None:
            return True
        at = data.find(begins, at + 1)
    return False
