"""A page of listed messages, made of their records; it ends when it is full or enough has been looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tarry.node.services.message_filter import Filter
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.message_id import MessageId
from tarry.proto.tarry_message_pb2 import Record, Retried

PAGE_MAX: Final = 1_000
"""Messages of a page."""
PAGE_DEFAULT: Final = 100
PAGE_BYTES_MAX: Final = 4 << 20
"""Of a page, and one message more."""
READ_BYTES_MAX: Final = 8 << 20
"""Of the records that a page reads, and one record more."""
RECORDS_MAX: Final = 4_000
"""Records that a page looks at: a filter may pass over all of them."""
COST_MAX: Final = 16 << 20
"""Index units that a page has the wheel look at, some 60 ms of work; more only to end what was begun."""
UNITS_MAX: Final = 256 << 10
"""Units of ready queues that a page looks at."""


class Page:
    """Messages so far, and what has been looked at for them."""

    def __init__(self, filter_: Filter, size: int, *, bodies: bool) -> None:
        self.messages: list[pb.ListedMessage] = []
        self.cost = self.units = 0
        """Of the wheel's scan, and of ready queues."""
        self._filter, self._size, self._bodies = filter_, size, bodies
        self._records = self._read_bytes = self._bytes = 0

    @property
    def room(self) -> int:
        """Messages that it has room for."""
        return self._size - len(self.messages)

    @property
    def is_full(self) -> bool:
        """True if it takes no more."""
        return (
            self.room <= 0
            or self._bytes >= PAGE_BYTES_MAX
            or self._read_bytes >= READ_BYTES_MAX
            or self._records >= RECORDS_MAX
        )

    @property
    def has_looked_enough(self) -> bool:
        """True if no more indices and units should be looked at for it."""
        return self.is_full or self.cost >= COST_MAX or self.units >= UNITS_MAX

    def add(self, rows: Sequence[pb.ListedMessage], records: Sequence[bytes | None]) -> int:
        """Add those rows that match, with what is told of their records; return how many were looked at."""
        for count, (row, stored) in enumerate(zip(rows, records, strict=True)):
            if self.is_full:
                return count
            self._add(row, stored)
        return len(rows)

    def _add(self, row: pb.ListedMessage, stored: bytes | None) -> None:
        self._records += 1
        self._read_bytes += len(stored or b"")
        if stored is not None and row.group:
            copy = Retried.FromString(stored)
            row.id, row.attempt, row.reason = _id_of(copy, row.id), copy.attempt, copy.reason
            stored = copy.record
        if self._filter.needs_records and not self._filter.matching([stored])[0]:
            return
        if stored is None:
            row.damaged = True
        else:
            self._tell(row, Record.FromString(stored))
        self.messages.append(row)
        self._bytes += row.ByteSize()

    def _tell(self, row: pb.ListedMessage, record: Record) -> None:
        row.tags.extend(record.tags)
        row.keys.extend(record.keys)
        row.ordering_key = record.ordering_key
        row.idempotency_key = record.idempotency_key
        row.properties.update(record.properties)
        row.body_bytes = len(record.body)
        row.born_ms, row.stored_ms = record.born_ms, record.stored_ms
        if self._bodies:
            row.body = record.body


def _id_of(copy: Retried, own: str) -> str:
    """Return the id of a copy's message, in the shard of its own."""
    return str(MessageId(MessageId.parse(own).shard, copy.hour, copy.global_index))
