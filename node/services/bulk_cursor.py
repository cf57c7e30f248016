"""Cursors of cancels of many messages: how far one is, and what its next call cancels, as one text.

All that a cancel has to know from one call to the next is in it, so that any leader goes on with it. Whoever
forges one harms nobody: what it names is cancelled only where it is in the topic that the caller names. After
a restore those of before are refused: other messages may rest at the places that they name.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from typing import Any, Final, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from tarry.node.services.message_filter import invalid_query
from tarry.proto import tarry_query_pb2 as pb
from tarry.replication.state_machine.refusal import Refusal

CURSOR_CHARS_MAX: Final = 65_536
CHOSEN_MAX: Final = 2_048
"""Messages that one call cancels: as many as a command may have of released ones."""

BY_KEY, PENDING, RETRIES_PENDING, RETRIES_READY, READY, RETRIES_LEFT, OVER = range(7)
"""Phases. With keys the first, and the second only where the index of keys is not complete; from the third on
those of a purge. A retry goes before its message: that then waits nowhere else. RETRIES_LEFT looks once more
for pending retries: some may have been rescheduled to an hour that was passed."""
IN_WHEEL: Final = (BY_KEY, PENDING, RETRIES_PENDING, RETRIES_LEFT)

COUNT_MAX: Final = 1 << 60
"""In a cursor; a larger one is forged."""


class Chosen(NamedTuple):
    """The messages that a call cancels, each once: columns of shape (n,)."""

    hour: NDArray[np.uint32]
    """Of the message's id; of a ready queue's: the number of the queue."""
    place: NDArray[np.int64]
    """Global index of the id; of a ready queue's the offset."""


NOTHING: Final = Chosen(np.empty(0, np.uint32), np.empty(0, np.int64))


def hash_of(request: pb.CancelMatchingRequest | Any, incarnation: int) -> int:
    """Return a hash of what a call asks for beside its cursor, and of the cluster's incarnation."""
    asked = type(request)()
    asked.CopyFrom(request)
    asked.cursor = ""
    told = f"{asked.DESCRIPTOR.full_name} {incarnation} ".encode()
    told += asked.SerializeToString(deterministic=True)
    return int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "little")


def text_of(cursor: pb.BulkCursor) -> str:
    """Return a cursor as clients keep it."""
    return base64.urlsafe_b64encode(cursor.SerializeToString()).decode()


def read(text: str, request: int, queue: int) -> pb.BulkCursor | Refusal:
    """Return the cursor that a caller gave back; for an empty text one of the beginning.

    Args:
        request: hash of the caller's request, which must be that of the cursor.
        queue: number of the topic's queue, likewise.
    """
    if not text:
        return pb.BulkCursor(request=request, queue=queue)
    cursor = _decoded(text)
    if cursor is None or not _whole(cursor):
        return invalid_query("the cursor is damaged: give it as an answer had it, or begin without")
    if cursor.request != request:
        text = "the cursor is of another request, or of before a restore: give the same topic and filter, or"
        return invalid_query(f"{text} begin without")
    if cursor.queue != queue:
        return invalid_query("the topic was deleted since, and made again: begin without the cursor")
    return cursor


def packed(chosen: Chosen) -> bytes:
    """Return messages as a cursor holds them, ascending: mostly they follow one another closely."""
    order = np.lexsort((chosen.place, chosen.hour))
    columns = np.stack((chosen.hour.astype(np.int64), chosen.place))[:, order]
    return zlib.compress(np.diff(columns, prepend=0).astype("<i8").tobytes(), 1) if len(order) else b""


def unpacked(data: bytes) -> Chosen | None:
    """Return what ``packed`` was given, ascending; None: these bytes are of no messages."""
    if not data:
        return NOTHING
    unpacker = zlib.decompressobj()
    try:
        raw = unpacker.decompress(data, 16 * CHOSEN_MAX + 1)
    except zlib.error:
        return None
    if not unpacker.eof or unpacker.unused_data or not raw or len(raw) % 16 or len(raw) > 16 * CHOSEN_MAX:
        return None
    hour, place = np.cumsum(np.frombuffer(raw, "<i8").reshape(2, -1), axis=1)
    if min(hour.min(), place.min()) < 0 or hour.max() > 0xFFFFFFFF:
        return None
    ascend = (np.diff(hour) > 0) | ((np.diff(hour) == 0) & (np.diff(place) > 0))
    return Chosen(hour.astype(np.uint32), place) if ascend.all() else None


def _whole(cursor: pb.BulkCursor) -> bool:
    """Return whether an answer may have had it."""
    chosen = unpacked(cursor.chosen)
    if chosen is None or any(value > COUNT_MAX for _, value in cursor.counts.ListFields()):
        return False
    return cursor.phase not in IN_WHEEL or bool((chosen.place <= 0xFFFFFFFF).all())


def _decoded(text: str) -> pb.BulkCursor | None:
    if len(text) > CURSOR_CHARS_MAX:
        return None
    try:
        return pb.BulkCursor.FromString(base64.b64decode(text, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
