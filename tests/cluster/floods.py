"""Requests of as many bytes as may be, made of nothing but the smallest parts of one field."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

UNKNOWN: Final = 1_000
DEPTH_MAX: Final = 4
WIRE_TYPES: Final = {
    FieldDescriptor.TYPE_FIXED32: 5,
    FieldDescriptor.TYPE_SFIXED32: 5,
    FieldDescriptor.TYPE_FIXED64: 1,
    FieldDescriptor.TYPE_SFIXED64: 1,
}
ZEROS: Final = {0: b"\0", 1: bytes(8), 5: bytes(4)}


def floods(kind: Descriptor, size_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Yield such a request for each repeated field, at any depth, and one of unknown fields; by name."""
    yield "unknown", filled(tag(UNKNOWN, 2) + b"\0", size_bytes)
    yield from _repeated(kind, size_bytes - 40, DEPTH_MAX)


def _repeated(kind: Descriptor, size_bytes: int, depth: int) -> Iterator[tuple[str, bytes]]:
    for field in kind.fields:
        inner = field.message_type
        entries = inner is not None and inner.GetOptions().map_entry
        if inner is not None and not entries and depth:
            for name, raw in _repeated(inner, size_bytes, depth - 1):
                yield f"{field.name}.{name}", delimited(field.number, raw)
        if not field.is_repeated:
            continue
        if entries:
            parts = (delimited(field.number, delimited(1, b"%06x" % number)) for number in itertools.count())
            yield field.name, b"".join(itertools.islice(parts, size_bytes // 10))
        elif field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES) or inner is not None:
            yield field.name, filled(tag(field.number, 2) + b"\0", size_bytes)
        else:
            wire_type = WIRE_TYPES.get(field.type, 0)
            value = ZEROS[wire_type]
            yield f"{field.name}, not packed", filled(tag(field.number, wire_type) + value, size_bytes)
            yield field.name, delimited(field.number, filled(value, size_bytes))


def filled(part: bytes, size_bytes: int) -> bytes:
    """Return as many of a part as have room."""
    return part * (size_bytes // len(part))


def delimited(number: int, raw: bytes) -> bytes:
    """Return a length-delimited field."""
    return tag(number, 2) + varint(len(raw)) + raw


def tag(number: int, wire_type: int) -> bytes:
    """Return a field's tag."""
    return varint(number << 3 | wire_type)


def varint(value: int) -> bytes:
    """Return a varint."""
    groups = []
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])
