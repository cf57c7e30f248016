"""Records: what a message is, serialized once by the client and delivered as the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from operator import add, itemgetter
from typing import Final

from tarry.proto.record_times import STORED_BYTES, TIMES, TIMES_BYTES
from tarry.proto.tarry_message_pb2 import Record

_BODY_TAG: Final = Record.BODY_FIELD_NUMBER << 3 | 2
_BODY_TAG_BYTES: Final = bytes([_BODY_TAG])


def varint(value: int) -> bytes:
    """Return a protobuf varint of a number >= 0."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


class _Prefixes(dict[int, bytes]):
    """Tag and length that precede a body in a record with only a body, by the body's length."""

    LENGTHS_MAX: Final = 65_536

    def __missing__(self, length: int) -> bytes:
        if len(self) >= self.LENGTHS_MAX:
            self.clear()
        prefix = self[length] = _BODY_TAG_BYTES + varint(length)
        return prefix


_PREFIXES: Final = _Prefixes()


def body_records(bodies: Sequence[bytes]) -> list[bytes]:
    """Return one record a body, without a Python statement for each."""
    return list(map(add, map(_PREFIXES.__getitem__, map(len, bodies)), bodies))


def check_texts(**columns: Iterable[str]) -> None:
    """Raise TypeError for a text where several are meant: it would be taken for its characters."""
    for name, texts in columns.items():
        if isinstance(texts, str | bytes):
            raise TypeError(f"{name} must be several texts, as a list, not {texts!r}")


def record(
    body: bytes,
    tags: Sequence[str],
    keys: Sequence[str],
    properties: Mapping[str, str] | None,
    ordering_key: str = "",
    idempotency_key: str = "",
) -> bytes:
    """Return the record of any message."""
    if not (tags or keys or properties or ordering_key or idempotency_key):
        return _PREFIXES[len(body)] + body
    check_texts(tags=tags, keys=keys)
    # Deterministic: equal messages have equal bytes, map fields included.
    return Record(
        body=body,
        tags=tags,
        keys=keys,
        properties=properties,
        ordering_key=ordering_key,
        idempotency_key=idempotency_key,
    ).SerializeToString(deterministic=True)


def more_properties(properties: Mapping[str, str]) -> bytes:
    """Return the bytes that add properties to the record to whose end they are appended."""
    return Record(properties=properties).SerializeToString(deterministic=True)


def properties_of(serialized: bytes) -> dict[str, str]:
    """Return the properties of a record."""
    return dict(Record.FromString(serialized).properties)


def body_of(serialized: bytes) -> bytes:
    """Return the body of a record; without parsing it where it is only a short body.

    Raises google.protobuf.message.DecodeError for bytes that are no record.
    """
    size = len(serialized)
    for times_bytes in (TIMES_BYTES, STORED_BYTES):  # that a leader has appended
        if size > times_bytes and TIMES.fullmatch(serialized, size - times_bytes):
            found = _only_body(serialized, size - times_bytes)
            if found is not None:
                return found
    found = _only_body(serialized, size)
    return Record.FromString(serialized).body if found is None else found


def _only_body(serialized: bytes, size: int) -> bytes | None:
    """Return the body, if the first ``size`` bytes are a short one and nothing else."""
    # The tag and the length take 2 bytes where the body has up to 127, 3 up to 16,383, 4 up to 2,097,151.
    head = 2 if size <= 129 else 3 if size <= 16_386 else 4 if size <= 2_097_155 else 0
    if head and size >= head and serialized.startswith(_PREFIXES[size - head]):
        return serialized[head:size]
    return None


def bodies_of(serialized: Sequence[bytes]) -> list[bytes]:
    """Return one body a record; without a statement for each where all are equally long bodies only."""
    if not serialized:
        return []
    body_bytes = len(body_of(serialized[0]))
    prefix = _PREFIXES[body_bytes]
    end = len(prefix) + body_bytes
    alike = set(map(len, serialized)) in ({end}, {end + TIMES_BYTES}, {end + STORED_BYTES})
    if alike and all(map(bytes.startswith, serialized, repeat(prefix))):
        bare = len(serialized[0]) == end
        ends = () if bare else set(map(itemgetter(slice(end, None)), serialized))  # few: a request's are one
        if all(map(TIMES.fullmatch, ends)):
            return list(map(itemgetter(slice(len(prefix), end)), serialized))
    return list(map(body_of, serialized))
