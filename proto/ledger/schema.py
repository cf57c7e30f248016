"""Format of ledgers: rows and files that nodes write, clients write as receipts, and Spark reads.

One row is one event of one message, or of a node. A reader turns COLUMNS into its own schema.

    <ledger>/date=2026-11-21/<source>-<run>-<first_index>-<last_index>-<segment>.parquet
                             the same stem with .json: its manifest
    <ledger>/open/           rows that are in no closed segment yet; only their writer reads it

A segment covers the applied indices first_index < index ≤ last_index, whether or not they made rows.
Consecutive segments of a source join, or overlap after a restart (rows of equal identity are then
equal); where they do not, a `gap` row says what is missing. `date` is the day of a segment's first row
(UTC); a row of the minutes around midnight may be of the next day, and the manifest's times are exact.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal, TypedDict


class Kind(StrEnum):
    """Kind of an event."""

    # detail DEAD_LETTER: the message is a dead letter's own; of a schedule's fire: see fires.py, of a
    # committed transaction: see transactions.py
    SCHEDULED = "scheduled"
    RELEASED = "released"  # with a group: a retry's copy, to that group's retry queue alone
    DELIVERED = "delivered"  # detail: see delay_detail; the delay is in due_ms, as it is in that of received
    ACKED = "acked"
    NACKED = "nacked"
    RETRIED = "retried"  # due_ms: of the next attempt; detail: NACKED, LEASE_EXPIRED or REDRIVEN
    DEAD = "dead"  # detail: as of retried
    # with a group: the copy that waits for its retry; with attempt 1, for that group alone
    CANCELLED = "cancelled"
    # due_ms: the new one; detail UPDATED: its record is new. With a group: the copy that waits for its retry
    RESCHEDULED = "rescheduled"
    # due, and not released; detail: TOPIC_DELETED or MISFIRED. With a group, an offset and RETENTION: trimmed
    # before the group had acknowledged it
    EXPIRED = "expired"
    PREPARED = "prepared"  # a half message, which has no id; detail: see transactions.py
    ROLLED_BACK = "rolled_back"  # likewise
    GROUP_MOVED = "group_moved"  # from `offset` on the group goes on; no message; detail: a GroupMove
    LEADERSHIP = "leadership"  # detail: leader, follower or transfer
    CLOCK_JUMP = "clock_jump"  # of the node's own wall clock; detail: ms
    GAP = "gap"  # detail: see gap_detail
    PRODUCED = "produced"  # receipt: the producer has the OK; detail: none, or REPEATED
    RECEIVED = "received"  # receipt: the application received it
    ACK_ANSWERED = "ack_answered"  # receipt: the ack was answered and was not stale


REPEATED: Final = "REPEATED"
"""Detail of a schedule whose idempotency key was used before, and of a commit behind the first."""


DELAYED: Final = "DELAYED "
"""Begins the detail of a first delivery to a group with a delay; its ms follow."""


def delay_detail(delay_ms: int) -> str | None:
    """Return the detail of first deliveries to a group with such a delay."""
    return f"{DELAYED}{delay_ms}" if delay_ms else None


class GroupMove(StrEnum):
    """Cause of a group's move to another offset."""

    CREATED = "CREATED"
    SEEK = "SEEK"
    DELETED = "DELETED"
    TOPIC_DELETED = "TOPIC_DELETED"
    TRIMMED = "TRIMMED"


REPLICATED: Final = (
    Kind.SCHEDULED,
    Kind.RELEASED,
    Kind.ACKED,
    Kind.RETRIED,
    Kind.DEAD,
    Kind.CANCELLED,
    Kind.RESCHEDULED,
    Kind.EXPIRED,
    Kind.PREPARED,
    Kind.ROLLED_BACK,
    Kind.GROUP_MOVED,
)
"""Equal on all replicas but for `source` and `run`; identity: (shard, term, index, position)."""

NODE_MADE: Final = (Kind.DELIVERED, Kind.NACKED, Kind.LEADERSHIP, Kind.CLOCK_JUMP, Kind.GAP)
RECEIPTS: Final = (Kind.PRODUCED, Kind.RECEIVED, Kind.ACK_ANSWERED)
"""These two: identity (source, run, position), which begins again at 0 where it would not fit its column."""
POSITION_MAX: Final = 2**31 - 1


def numbered(made: int, rows: int) -> tuple[int, int]:
    """Return the position of the first of some rows behind those that a run has made, and of the next."""
    first = made if made + rows - 1 <= POSITION_MAX else 0
    return first, first + rows


COLUMNS: Final = {
    "kind": "string",
    "source": "string",  # node, or `producer:<name>`, `consumer:<name>`
    "shard": "int32",
    "term": "int64",  # of the entry; node-made: in which it was made; receipts: the dispatch stamp's, or -1
    "index": "int64",  # of the entry; node-made: applied when it happened; receipts: -1
    "position": "int32",  # in the entry; node-made and receipts: running number of the run
    "at_ms": "int64",  # cluster time as stamped in the entry; node-made: the node's; receipts: wall clock
    "topic": "string",
    "group": "string",
    "hour": "int32",  # with global_index: the message that the producer scheduled, for retries too
    "global_index": "int64",
    "due_ms": "int64",
    "offset": "int64",  # in the topic's ready queue, or with attempt > 1 in the group's retry queue
    "attempt": "int32",  # delivered, acked, nacked, retried, dead: which delivery it is about, from 1
    "maybe_duplicate": "bool",  # delivered, received: was it marked
    "consumer": "string",
    "order_key": "int64",  # hash of the ordering key; only of what is delivered from the topic's ready queue
    "run": "string",  # of the source's process
    "detail": "string",
}
"""Column -> type, in order; null where a column does not apply. Strings repeat: they are dictionaries."""

ALWAYS: Final = frozenset({"kind", "source", "shard", "term", "index", "position", "at_ms", "run"})
"""The columns that are never null."""

STRINGS: Final = tuple(name for name, of in COLUMNS.items() if of == "string")

VERSION: Final = 1


class Manifest(TypedDict):
    """Content of a closed segment's `.json`. A segment without one is not closed."""

    version: int
    source: str
    run: str
    segment: int  # grows by one with each segment of a source, over its runs
    first_index: int  # exclusive
    last_index: int  # inclusive
    first_at_ms: int  # least and greatest at_ms; 0, 0 where there are no rows
    last_at_ms: int
    rows: int
    kinds: dict[str, int]
    bytes: int  # of the Parquet file
    crc32c: int  # of the Parquet file
    filtered: bool  # an export left rows out, so nothing follows from what is not in it


def stem(source: str, run: str, first_index: int, last_index: int | Literal["*"], segment: int) -> str:
    """Return a segment's file name without its ending; with `*` for the last index, a pattern of it."""
    return f"{source.replace(':', '_')}-{run}-{first_index}-{last_index}-{segment}"


class Missing(StrEnum):
    """Rows that a gap is about."""

    ALL = "all"  # of the indices, and node-made ones of that time
    NODE_MADE = "node_made"  # only those, made after the first index: the process was killed


def gap_detail(missing: Missing, first_index: int, last_index: int, why: str) -> str:
    """Return a gap row's detail, `all 120..340 WRITE_FAILED`: first exclusive, last inclusive.

    WRITE_FAILED: the disk did not take the rows. OVERFLOW: it was too slow. SNAPSHOT: the node took a
    peer's state in place of these entries. UNWRITTEN: one of these, found at a start. BEGUN: the ledger
    began here. KILLED: the process ended without closing. RECOVERED_ALONE, with one index twice: the node
    went on alone behind it at the row's at_ms, and what others had committed there without it is lost.
    """
    return f"{missing} {first_index}..{last_index} {why}"
