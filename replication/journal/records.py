"""The format of a journal's records, and what a storage has to do for it.

    entry   key: index   value: term u64, crc32c u32, chain u64, payload   (little-endian)
    head    crc32c u32, JournalHead

The chain is a hash over all entries so far: where two logs have equal chains they are equal up to there.
A payload is a byte that says which kind of entry it is, and its message.
"""

from __future__ import annotations

import bisect
import hashlib
import struct
from array import array
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import google_crc32c

from tarry.proto.tarry_peer_pb2 import JournalHead, MembershipChange

Entry: TypeAlias = tuple[bytes, int, int]
"""Payload (kind byte first), index, term: the shape in which pysyncobj knows an entry."""

MEMBERSHIP = 2
NO_OP_PAYLOAD = b"\x01"

_HEADER = struct.Struct("<QIQ")  # term, crc32c of the payload, chain
_LINK = struct.Struct("<QQQI")  # chain before, index, term, crc32c
_CRC = struct.Struct("<I")


class JournalDamaged(Exception):
    """A synced record is not what was written. The replica must not start: what it has promised may be
    gone. Replace its disk and let it join anew as a learner."""


class JournalMisused(Exception):
    """A change that would lose committed entries, or the last two: a bug. The process must end."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes that one write makes durable, in this order: delete from, put, delete below, head."""

    delete_from: int | None
    puts: Sequence[tuple[int, bytes]]
    delete_below: int | None
    head: bytes
    last_index: int
    term: int
    spoken: Set[str] = frozenset()
    deferred: bool = False
    """It may be written now and flushed later: until then a power loss takes it back."""

    @property
    def size_bytes(self) -> int:
        """Size of the entries and the head."""
        return len(self.head) + sum(len(value) for _, value in self.puts)


@dataclass(slots=True)
class Staged:
    """Changes that wait for the next batch."""

    delete_from: int | None = None
    puts: dict[int, bytes] = field(default_factory=dict)
    delete_below: int | None = None
    head: bool = False

    @property
    def may_wait(self) -> bool:
        """True if it only adds entries: of anything else a majority's word may rest on this disk alone."""
        return bool(self.puts) and not self.head and self.delete_from is None and self.delete_below is None

    def any(self) -> bool:
        return self.head or bool(self.puts) or self.delete_from is not None or self.delete_below is not None


class Storage(Protocol):
    """Storage of a journal. Any error other than those named is fatal to the process."""

    def read_head(self) -> bytes | None: ...

    def read(self, index: int) -> bytes | None: ...

    def scan(self, first: int) -> Iterator[tuple[int, bytes]]:
        """Yield the records from index `first` on, in order, at least up to the first that is missing."""

    def first_within(self, size_bytes: int) -> int:
        """Return the first entry that to keep takes no more than some bytes of storage, about; 0: any."""

    def is_long(self, batch: Batch) -> bool:
        """Return whether writing a batch takes long, however quick the disk is."""

    def needs_upkeep(self) -> bool:
        """Return whether `upkeep` has something to do."""

    def upkeep(self) -> None:
        """Do what makes later writes short; blocks, and may run in a thread beside a write."""

    @property
    def may_defer(self) -> bool:
        """True if a write may be flushed later: a loss of power in between would be noticed."""

    @property
    def is_marked(self) -> bool:
        """True if a loss of power now would be taken for one that has taken something back."""

    def write(self, batch: Batch) -> None:
        """Write all of the batch or none of it, durably; one that is deferred so that a kill leaves it."""

    def flush(self) -> None:
        """Make durable what has been written before; may run in a thread beside a write."""

    def settle(self) -> None:
        """Note durably that nothing waits for a flush, unless something does; as `flush`."""

    def close(self) -> None: ...


class Sizes:
    """Bytes up to and with each entry, at 8 bytes an entry: what compaction keeps is measured in them."""

    def __init__(self) -> None:
        self._ends = array("Q")
        self._gone = 0  # of the ends; cut off once they are more than half

    def push(self, size_bytes: int) -> None:
        self._ends.append((self._ends[-1] if self._ends else 0) + size_bytes)

    def cut(self, position: int) -> None:
        del self._ends[self._gone + position :]

    def drop(self, count: int) -> None:
        self._gone += count
        if self._gone > len(self._ends) // 2:
            del self._ends[: self._gone]
            self._gone = 0

    def start_retaining(self, first: int, index: int, bytes_max: int) -> int:
        at = self._gone + index - first
        begin = max(0, self._ends[at] - bytes_max)
        return first - self._gone + bisect.bisect_left(self._ends, begin, self._gone, at)


def chain_after(before: int, index: int, term: int, crc: int) -> int:
    digest = hashlib.blake2b(_LINK.pack(before, index, term, crc), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def encode(payload: bytes, index: int, term: int, chain_before: int) -> tuple[bytes, int]:
    """Return the stored form of an entry, and its chain."""
    crc = google_crc32c.value(payload)
    chain = chain_after(chain_before, index, term, crc)
    return _HEADER.pack(term, crc, chain) + payload, chain


def mark(term: int, chain: int) -> bytes:
    """Return the stored form of an entry that stands for all up to it; its chain is given."""
    return _HEADER.pack(term, google_crc32c.value(NO_OP_PAYLOAD), chain) + NO_OP_PAYLOAD


def follows(entry: Entry, chain: int, chain_before: int) -> bool:
    payload, index, term = entry
    return chain == chain_after(chain_before, index, term, google_crc32c.value(payload))


def decode(index: int, value: bytes) -> tuple[Entry, int]:
    """Return the entry of a stored form, and its chain. Raises JournalDamaged."""
    if len(value) <= _HEADER.size:
        raise JournalDamaged(f"entry {index} is cut short")
    term, crc, chain = _HEADER.unpack_from(value)
    payload = value[_HEADER.size :]
    if google_crc32c.value(payload) != crc:
        raise JournalDamaged(f"entry {index}: checksum")
    return (payload, index, term), chain


def seal(head: bytes) -> bytes:
    return _CRC.pack(google_crc32c.value(head)) + head


def read_head(storage: Storage) -> JournalHead:
    sealed = storage.read_head()
    return JournalHead() if sealed is None else parse_head(sealed)


def parse_head(sealed: bytes) -> JournalHead:
    """Return the head of a sealed one. Raises JournalDamaged."""
    if len(sealed) < _CRC.size or seal(sealed[_CRC.size :]) != sealed:
        raise JournalDamaged("head: checksum")
    return JournalHead.FromString(sealed[_CRC.size :])


REGULAR = 0


def entry_payload(commands: bytes) -> bytes:
    """Return the payload of `commands`, a serialized LogEntry."""
    return bytes((REGULAR,)) + commands


def membership_payload(change: MembershipChange) -> bytes:
    return bytes((MEMBERSHIP,)) + change.SerializeToString(deterministic=True)


def is_regular(entry: Entry) -> bool:
    return entry[0][0] == REGULAR
