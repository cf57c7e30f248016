"""Chunks of rows, n of one kind each, and their bytes in an open segment. Needs only numpy.

A node never builds Arrow or Parquet itself, as their memory is not given back: another process does, once a
segment is full (see parquet.py).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = "int | NDArray[Any] | None"

ROW_BYTES: Final = 64
CHUNK_BYTES: Final = 800
_HEAD: Final = struct.Struct("<I")
_ARRAYS: Final = {np.ndarray, tuple}


class Chunk(NamedTuple):
    """n rows of one kind: each column one value for all, an array of shape (n,), or None."""

    rows: int
    kind: str
    at_ms: int | NDArray[np.int64]
    index: int
    term: int
    position: int  # of the first row
    shard: int = 0
    topic: str | tuple[NDArray[Any], Sequence[str]] | None = None  # or positions, and what they name
    group: str | None = None
    hour: Numbers = None  # -1 in an array: null, as is the global_index then
    global_index: Numbers = None
    due_ms: Numbers = None
    offset: Numbers = None
    attempt: Numbers = None
    maybe_duplicate: NDArray[np.bool_] | None = None
    consumer: str | None = None
    order_key: Numbers = None  # 0 in an array: null
    detail: str | None = None

    @property
    def size_bytes(self) -> int:
        """Estimated bytes of memory that it takes."""
        return CHUNK_BYTES + ROW_BYTES * self.rows


def pack(chunks: Sequence[Chunk]) -> bytes:
    """Return chunks as bytes: a length, JSON with a list for each field, then the arrays one after another.

    In the JSON an array is a list of its type, and of what its positions name.
    """
    arrays: list[NDArray[Any]] = []
    fields: list[Any] = []
    for values in zip(*chunks, strict=True):
        if _ARRAYS.isdisjoint(map(type, values)):
            fields.append(values)
        else:
            arrays += [
                value[0] if type(value) is tuple else value for value in values if type(value) in _ARRAYS
            ]
            fields.append([_plain(value) if type(value) in _ARRAYS else value for value in values])
    head = json.dumps(fields, separators=(",", ":"), default=int).encode()
    return b"".join([_HEAD.pack(len(head)), head, *[array.tobytes() for array in arrays]])


def _plain(value: Any) -> list[Any]:
    """Return what the JSON says of an array, or of positions and what they name."""
    return [_type(value[0].dtype), list(value[1])] if type(value) is tuple else [_type(value.dtype)]


@cache
def _type(of: np.dtype[Any]) -> str:  # numpy builds the text anew each time, which takes longer than all else
    return str(of.str)


def unpack(payload: bytes) -> list[Chunk]:
    """Return the chunks of such bytes; they are trusted, for a checksum covers them."""
    (size,) = _HEAD.unpack_from(payload)
    at = _HEAD.size + size
    fields = json.loads(payload[_HEAD.size : at])
    rows = fields[0]
    for values in fields:
        for number, value in enumerate(values):
            if isinstance(value, list):
                array = np.frombuffer(payload, value[0], rows[number], at)
                at += array.nbytes
                values[number] = (array, value[1]) if len(value) > 1 else array
    return [Chunk(*values) for values in zip(*fields, strict=True)]
