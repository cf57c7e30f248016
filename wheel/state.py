"""The values that the wheel takes and gives."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

HOUR_MS: Final = 3_600_000
SECOND_MS: Final = 1_000
HOUR_SECONDS: Final = 3_600
NONE: Final = 0xFFFF_FFFF
"""As a global index: none; in a cut: behind every message of its millisecond."""
MARK: Final = np.uint32(1 << 31)
"""A bit of the topic's number that is the caller's: kept, and not counted by."""

Times: TypeAlias = NDArray[np.int64]
Numbers: TypeAlias = NDArray[np.uint32]
Masks: TypeAlias = NDArray[np.uint64]
Flags: TypeAlias = NDArray[np.bool_]
Rows: TypeAlias = NDArray[np.void]
MovedState: TypeAlias = tuple[tuple[bytes | memoryview, bytes | memoryview], ...]
"""Checkpoint value of the moved messages: ids and places in columns of u64, hour << 32 | global index."""
IdGapsState: TypeAlias = tuple[tuple[int, bytes, bytes, int], ...]
"""Checkpoint value of the id gaps: each has its size, columns of u32 (hours, their units), a floor hour."""


@dataclass(frozen=True, slots=True)
class WheelSettings:
    """Bounds on what the wheel keeps in memory and open. None of them changes a result."""

    near_ms: int = 10_000
    """The near queue is loaded at least so far past the cut, if there is room."""
    near_messages_max: int = 262_144
    """Messages in the near queue (24 bytes each); one second alone may exceed it."""
    resident_bytes_max: int = 33_554_432
    """Mapped index pages that stay in this process's memory."""
    hours_open_max: int = 64
    """Hours whose files are open: 4 descriptors and 57,600 bytes of slots each, at most; and as many segments
    of the far log."""
    read_gap_bytes: int = 2_048
    """Records of the log this close to one another are read in one call."""


class Cut(NamedTuple):
    """Everything with (due_ms, global_index) at or below has been released, or was overdue on arrival."""

    due_ms: int
    global_index: int

    @property
    def complete(self) -> bool:
        """True if nothing of `due_ms` is left."""
        return self.global_index == NONE

    def has_passed(self, due_ms: Times, global_index: Numbers) -> Flags:
        """Flag the messages, shape (n,), that are at or below."""
        passed: Flags = (due_ms < self.due_ms) | (
            (due_ms == self.due_ms) & (global_index <= self.global_index)
        )
        return passed


NOTHING_RELEASED: Final = Cut(0, NONE)


class MessageState(IntEnum):
    """The state of one message, as far as the wheel knows."""

    PENDING = 1
    RELEASED = 2
    CANCELLED = 3
    NOT_FOUND = 4


class CancelOutcome(IntEnum):
    """The definite answer to one cancel."""

    CANCELLED = 1
    ALREADY_RELEASED = 2
    NOT_FOUND = 3
    ALREADY_CANCELLED = 4


@dataclass(frozen=True, slots=True, eq=False)
class Appended:
    """The places of the messages of one append, each array of shape (n,), in the order given."""

    hour: Numbers
    global_index: Numbers
    overdue: Flags
    """At or before the cut: released on arrival, never to be taken."""


@dataclass(frozen=True, slots=True, eq=False)
class Cancellation:
    """The outcome of one call that cancels messages."""

    outcomes: NDArray[np.uint8]
    """A CancelOutcome each, shape (n,)."""
    rows: NDArray[np.intp]
    """Those that were pending until then, ascending, shape (k,); of one that is named twice the first row."""
    topic: Numbers
    """Of these, likewise the next."""
    due_in_hour_ms: Numbers


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """Messages released, each array of shape (n,), in (due_ms, hour, global_index) order."""

    due_ms: Times
    hour: Numbers
    global_index: Numbers
    topic: Numbers
    tag_mask: Masks

    def __len__(self) -> int:
        return len(self.due_ms)


@dataclass(frozen=True, slots=True)
class HourState:
    """Checkpoint value of one hour partition."""

    hour: int
    log_bytes: int
    units: int
    index_crc: int
    slots_crc: int | None
    """None: the hour's slots are rebuilt, not read."""
    pending: int
    """Of those units."""
    cancelled: bytes
    """A serialized roaring bitmap of global indices; empty where none is cancelled."""
    overtaken: bytes = b""
    """Another, of those released ahead of the cut."""
    message_sum: int | None = None
    """Of its units (see message_sum.py). None: it is summed up, not read."""
    withdrawn: bytes = b""
    """Another bitmap, of those cancelled after their release."""


@dataclass(frozen=True, slots=True)
class SegmentState:
    """Checkpoint value of one segment of the far log."""

    number: int
    log_bytes: int
    units: int
    index_crc: int
    cancelled: bytes
    """A serialized roaring bitmap of the segment's rows."""


@dataclass(frozen=True, slots=True)
class FarState:
    """Checkpoint value of the far log."""

    first: int = 0
    """Rows below are not read any more."""
    segments: tuple[SegmentState, ...] = ()
    dropped_hours: bytes = b""
    """A serialized roaring bitmap of hours whose rows are not read any more."""


@dataclass(frozen=True, slots=True)
class WheelState:
    """Checkpoint value of the wheel; its default is the empty wheel."""

    hours: tuple[HourState, ...] = ()
    """Of the hours that have a partition."""
    cut: Cut = NOTHING_RELEASED
    local_index: int = 0
    floor_hour: int = 0
    topics: tuple[int, ...] = ()
    """Pending messages by topic."""
    far: FarState = FarState()
    thinned: tuple[tuple[int, int], ...] = ()
    """Hours, each with the checksum of its thin index, which takes the other's place once this is durable."""
    moved: MovedState = ()
    id_gaps: IdGapsState = ()

    @property
    def pending(self) -> int:
        """Messages appended and neither released nor cancelled."""
        return sum(self.topics)


class WheelDamaged(Exception):
    """The file `path` of the wheel is not what its state says: replace this replica's data by a peer's."""

    def __init__(self, path: object, what: str) -> None:
        super().__init__(f"{path}: {what}")
        self.path = path


class UnknownMessage(LookupError):
    """No such message was ever appended, or its hour has been dropped."""
