"""The fields of a request, counted before it is parsed: a field takes two bytes, and up to 100 ns to parse.

See https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

FIXED_BYTES: Final = {1: 8, 5: 4}
LENGTH_DELIMITED: Final = 2
GROUP_ENDS: Final = 3, 4
"""Begin and end of a group: tags with nothing behind them. Parsing goes on past a group that is not known."""


def more_fields(raw: bytes, most: int) -> bool:
    """Return whether a message has more fields than that; of one that cannot be parsed, as far as it can."""
    return next(islice(fields(raw), most, None), None) is not None


def fields(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield each field's number and, where it is length-delimited, its content; up to what is malformed."""
    at, end = 0, len(raw)
    while at < end:
        # most tags and sizes are one octet: read here, for a call takes four times as long
        tag, at = (raw[at], at + 1) if raw[at] < 128 else _varint(raw, at)
        wire_type, content = tag & 7, b""
        if wire_type == 0:
            _, at = _varint(raw, at)
        elif wire_type == LENGTH_DELIMITED:
            size, at = (raw[at], at + 1) if at < end and raw[at] < 128 else _varint(raw, at)
            content = raw[at : at + size]
            at += size
        elif wire_type in FIXED_BYTES:
            at += FIXED_BYTES[wire_type]
        elif wire_type not in GROUP_ENDS:
            return
        if at > end:
            return
        yield tag >> 3, content


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """Return a varint and where it ends, beyond the message where it is not whole."""
    value = shift = 0
    while at < len(raw):
        octet = raw[at]
        at += 1
        value |= (octet & 127) << shift
        if octet < 128:
            return value, at
        shift += 7
        if shift > 63:
            break
    return 0, len(raw) + 1
