"""Keys of messages on their way to the key index, which is derived from the log, and no part of the state.

The leader parses records at intake, so it hashes their keys there, and the command carries the hashes:

    intake: (message, hash of the key) ──► log ──► apply: (hash of topic and key, place) ──► the key index

A command of a leader of 0.2.0 says nothing of keys; then each replica looks into the records itself.
An idempotency key is one key more, with a prefix, so that it is found by its own kind alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import compress
from typing import Final, NamedTuple

import google_crc32c
import numpy as np
from google.protobuf.message import DecodeError

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.wheel.keys.run import ROW, Words, words_of
from tarry.wheel.state import Appended, Numbers, Rows

UNREAD: Final = 0
"""Hash of rows for messages whose records could not be read: no key has it, and each lookup finds them."""
_FACTORS: Final = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
KEYS_MAX: Final = 8_192
"""Of one command that a replica reads on its event loop: some 4 ms; of more a thread reads the records."""
_STEP_RECORDS: Final = 512
IDEMPOTENCY_PREFIX: Final = b"\0"
"""In front of an idempotency key that is hashed."""
_MARK: Final = b"\0"
_MARKED: Final = {
    field: log_pb.KeyedRecord(**{field: [_MARK]}).SerializeToString() for field in ("keys", "idempotency_key")
}


class KeyColumns(NamedTuple):
    """Keys of n messages: for each key, shape (k,), the message's position and the key's hash."""

    message: Numbers
    key_hash: Words


class Unread(NamedTuple):
    """Messages whose keys are yet to be read from their records: columns of shape (n,)."""

    records: Sequence[bytes]
    queue: Numbers
    hour: Numbers
    global_index: Numbers


NO_KEYS: Final = KeyColumns(np.empty(0, np.uint32), np.empty(0, np.uint64))


class Keyed:
    """Rows for the key index since the last call of ``take``; gathered only if ``wanted``."""

    def __init__(self) -> None:
        self.wanted = False
        self.generation = 0
        """Of the index that has, or will have, all that was gathered; 0: none, it has to be built again."""
        self._gathered: list[Rows | Unread] = []

    def add(self, keys: KeyColumns, queue: Numbers, hour: Numbers, global_index: Numbers) -> None:
        """Take note of keys; the other columns are of all messages whose positions they have."""
        if self.wanted and len(keys.message):
            self._gathered.append(rows_of(keys, queue, hour, global_index))

    def scheduled(self, command: log_pb.ScheduleCommand, queue: Numbers, done: Appended, start: int) -> None:
        """Take note of the keys of a command's messages: those from `start` on of all that were appended."""
        if not self.wanted:
            return
        keys, mine = of_command(command), slice(start, start + len(command.request.records))
        columns = queue[mine], done.hour[mine], done.global_index[mine]
        if keys is None:
            self._gathered.append(Unread(list(command.request.records), *columns))
        else:
            self.add(keys, *columns)

    def take(self) -> list[Rows | Unread]:
        """Return what was gathered since the last call, in order."""
        gathered, self._gathered = self._gathered, []
        return gathered


def rows_of(keys: KeyColumns, queue: Numbers, hour: Numbers, global_index: Numbers) -> Rows:
    """Return rows of the index; the other columns are of all messages whose positions the keys have."""
    at = keys.message.astype(np.intp)
    rows = np.empty(len(at), ROW)
    rows["hash"] = of_topic(keys.key_hash, queue[at])
    rows["place"] = words_of(hour[at], global_index[at])
    return rows


def read(unread: Unread) -> list[Rows]:
    """Return the rows of messages whose keys are yet to be read. For a thread: some ms."""
    records, parts = sound(unread.records), []
    for start in range(0, len(records), _STEP_RECORDS):
        keys = of_sound(records[start : start + _STEP_RECORDS], start)
        parts.append(rows_of(keys, unread.queue, unread.hour, unread.global_index))
    return parts


def hashes(keys: Sequence[bytes]) -> Words:
    """Return hashes of encoded keys, shape (k,): crc32c and crc32 of each: all nodes work out the same.

    Whoever wants keys of equal hashes can make them, and gains nothing: a lookup compares the keys.
    """
    high = np.fromiter(map(google_crc32c.value, keys), np.uint64, len(keys))
    low = np.fromiter(map(zlib.crc32, keys), np.uint64, len(keys))
    mixed: Words = high << np.uint64(32) | low
    return mixed


def of_topic(key_hash: Words, queue: Numbers) -> Words:
    """Return hashes of topic and key, shape (k,), never UNREAD; `queue`: numbers of the topics' queues.

    Source: the finalizer of splitmix64 (Steele, Lea, Flood, 2014): what differs in one bit differs anywhere.
    """
    mixed: Words = key_hash ^ (queue.astype(np.uint64) + np.uint64(1)) * _FACTORS[0]
    mixed = (mixed ^ mixed >> np.uint64(30)) * _FACTORS[1]
    mixed ^= mixed >> np.uint64(31)
    return np.maximum(mixed, np.uint64(UNREAD + 1))


def of_sound(records: Sequence[bytes], first: int = 0) -> KeyColumns:
    """Return the keys of records that parse, as of messages from the position `first` on.

    Raises DecodeError.
    """
    together = _together(records, "keys")
    keys = _columns(list(together.keys), records, "keys", first)
    if not together.idempotency_key:
        return keys
    named = list(_together(records, "idempotency_key").idempotency_key)
    return joined([keys, _columns(named, records, "idempotency_key", first, IDEMPOTENCY_PREFIX)])


def _together(records: Sequence[bytes], field: str) -> log_pb.KeyedRecord:
    """Return the records as one, which has the keys of all: of a field with a mark behind each record's.

    To ask record by record takes twice as long.
    """
    return log_pb.KeyedRecord.FromString(_MARKED[field].join((*records, b"")))


def _columns(
    named: list[bytes], records: Sequence[bytes], field: str, first: int, prefix: bytes = b""
) -> KeyColumns:
    """Return the keys that a field of the records has, a mark behind each record's."""
    if len(named) == len(records):
        return NO_KEYS
    marks = np.fromiter(map(_MARK.__eq__, named), np.bool_, len(named))
    if int(np.count_nonzero(marks)) != len(records):  # a record has the mark for a key
        counts = [len(getattr(log_pb.KeyedRecord.FromString(record), field)) for record in records]
        marks = np.zeros(len(named), np.bool_)
        marks[np.cumsum(counts) + np.arange(len(records))] = True
    message = np.cumsum(marks, dtype=np.uint32)[~marks] + np.uint32(first)
    found = list(compress(named, (~marks).tolist()))
    return KeyColumns(message, hashes(list(map(prefix.__add__, found)) if prefix else found))


def idempotency_keys(records: Sequence[bytes]) -> list[bytes]:
    """Return the idempotency keys of records that parse, each of which has one."""
    keys = list(log_pb.KeyedRecord.FromString(b"".join(records)).idempotency_key)
    if len(keys) == len(records):
        return keys
    return [log_pb.KeyedRecord.FromString(record).idempotency_key[-1] for record in records]  # of its last


def of_few(records: Sequence[bytes], most: int, first: int = 0) -> KeyColumns | None:
    """Return as ``of_sound``; None where there are more than so many keys, for one turn of the event loop."""
    parts, count = list[KeyColumns](), 0
    for start in range(0, len(records), _STEP_RECORDS):
        parts.append(of_sound(records[start : start + _STEP_RECORDS], first + start))
        count += len(parts[-1].message)
        if count > most:
            return None
    return joined(parts)


def of_records(records: Sequence[bytes]) -> KeyColumns:
    """Return the keys of serialized records; one that is not to be parsed has none, nor a retry's copy."""
    return of_sound(sound(records))


def sound(records: Sequence[bytes]) -> Sequence[bytes]:
    """Return the records, those that are not to be parsed as empty ones."""
    try:
        log_pb.CheckedRecords.FromString(log_pb.RecordColumn(records=records).SerializeToString())
    except DecodeError:
        return [record if _is_sound(record) else b"" for record in records]
    return records


def of_command(command: log_pb.ScheduleCommand) -> KeyColumns | None:
    """Return the keys of a command's messages, as the leader told them, or else from the records.

    None: these have many; then read them in a thread.
    """
    message, key_hash = command.key_message, command.key_hash
    if command.keys_noted and 2 * len(message) == len(key_hash) and len(message) % 4 == 0:
        keys = KeyColumns(np.frombuffer(message, "<u4"), np.frombuffer(key_hash, "<u8"))
        if not message or int(keys.message.max()) < len(command.request.records):
            return keys
    return of_few(sound(command.request.records), KEYS_MAX)


def joined(parts: Sequence[KeyColumns]) -> KeyColumns:
    """Return the keys of several parts of the same messages."""
    parts = [part for part in parts if len(part.message)]
    if len(parts) <= 1:
        return parts[0] if parts else NO_KEYS
    message, key_hash = (np.concatenate(column) for column in zip(*parts, strict=True))
    return KeyColumns(message, key_hash)


def _is_sound(record: bytes) -> bool:
    try:
        log_pb.CheckedRecord.FromString(record)
    except DecodeError:
        return False
    return True
