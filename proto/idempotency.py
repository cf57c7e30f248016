"""Content of messages: what is compared where an idempotency key comes again, all but the trace context."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import chain
from typing import Final

from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.trace_context import TRACE_PROPERTIES

DIGEST_BYTES: Final = 16
_WIDTH: Final = 8
"""Bytes of each number that is part of a digest."""


def digest(record: Record) -> bytes:
    """Return the digest of what a record contains: other contents have another one.

    It is stored, so it never changes. Its idempotency key, and the digest that it may have, are no content.
    """
    told = ((name, value) for name, value in record.properties.items() if name not in TRACE_PROPERTIES)
    fields = (
        [record.body],
        [record.ordering_key.encode()],
        sorted(map(str.encode, record.tags)),
        sorted(map(str.encode, record.keys)),
        [part.encode() for part in chain.from_iterable(sorted(told))],
    )
    return blake2b(b"".join(map(_framed, fields)), digest_size=DIGEST_BYTES).digest()


def scheduled_digest(record: Record) -> bytes:
    """Return the digest of what was scheduled as a stored record, before any update."""
    return record.scheduled_digest or digest(record)


def _framed(parts: Sequence[bytes]) -> bytes:
    """Return parts as bytes that no other parts are: how many, and each behind its length."""
    return _number(len(parts)) + b"".join(_number(len(part)) + part for part in parts)


def _number(value: int) -> bytes:
    return value.to_bytes(_WIDTH, "little")
