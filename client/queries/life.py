"""Life of a message: what it is now, and what the nodes' ledgers say has happened to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from tarry.client.results import MessageState
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.ledger.schema import REPLICATED, Kind
from tarry.proto.tarry_message_pb2 import RetryReason


class GroupState(StrEnum):
    """State of a message for one consumer group."""

    WAITING = "waiting"
    IN_HAND = "in_hand"
    BLOCKED = "blocked"
    """Behind an earlier message of its ordering key."""
    IN_BACK_OFF = "in_back_off"
    WITHHELD = "withheld"
    """An earlier leader may have delivered it, and its consumer may come back."""
    SETTLING = "settling"
    """A verdict or a cancel is being committed."""
    DONE = "done"
    """Acknowledged, given up, passed over, or the group began behind it: its history says which."""
    CANCELLED = "cancelled"
    GONE = "gone"
    """Its queue holds it no more, and no retry of it waits."""
    DONE_OR_RETRIED = "done_or_retried"
    """Not all that waits could be looked at to find out whether a retry is of it."""
    UNSPECIFIED = "unspecified"
    """Its queue is too long to look for it in all of it, or this client does not know the state yet."""

    @classmethod
    def of(cls, state: int) -> GroupState:
        """Return the state of its number on the wire."""
        name = pb.GroupState.Name(state) if state in pb.GroupState.values() else "GROUP_STATE_UNSPECIFIED"
        return cls[name.removeprefix("GROUP_STATE_")]


@dataclass(frozen=True, slots=True)
class MessageInGroup:
    """A message as it is to one group now."""

    group: str
    state: GroupState
    why: str
    """The state in words: why nobody has it, or who does."""
    attempt: int
    """The delivery that it waits for, or is in hand as, from 1; 0: none."""
    consumer: str
    until_ms: int
    """End of the lease, of the back-off, or of what withholds it; 0: not known."""
    before: int | None
    """So many messages of the group go first; None: it does not wait."""
    reason: str
    """Of its retry: nacked or lease_expired; else empty."""
    retry_id: str
    consumers: int
    """That are connected."""
    maybe_delivered: bool
    dead_letter_topic: str

    @classmethod
    def of(cls, told: pb.MessageInGroup) -> MessageInGroup:
        """Return what an answer says of one group."""
        reasons = RetryReason.values()
        reason = RetryReason.Name(told.reason) if told.reason in reasons and told.reason else ""
        return cls(
            told.group,
            GroupState.of(told.state),
            told.why,
            told.attempt,
            told.consumer,
            told.until_ms,
            told.before if told.HasField("before") else None,
            reason.removeprefix("RETRY_REASON_").lower(),
            told.retry_id,
            told.consumers,
            told.maybe_delivered,
            told.dead_letter_topic,
        )


@dataclass(frozen=True, slots=True)
class MessageLife:
    """A message as it is now, linearizable."""

    id: str
    """Of a retry's copy: that of the message it is of."""
    topic: str
    due_ms: int
    state: MessageState
    offset: int | None
    """In the ready queue; None: in none."""
    released_ms: int | None
    queue_topic: str
    """Of that queue: the message's topic, or where a misfire has sent it."""
    groups: tuple[MessageInGroup, ...]
    groups_left_out: int
    now_ms: int
    applied_index: int

    @classmethod
    def of(cls, told: pb.GetLifeResponse) -> MessageLife:
        """Return the answer to one request."""
        placed = told.HasField("offset")
        return cls(
            told.id,
            told.topic,
            told.due_ms,
            MessageState.of(told.state),
            told.offset if placed else None,
            told.released_ms if placed else None,
            told.queue_topic,
            tuple(map(MessageInGroup.of, told.groups)),
            told.groups_left_out,
            told.now_ms,
            told.applied_index,
        )


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """A row of a ledger: something that happened to the message."""

    kind: str
    at_ms: int
    term: int
    index: int
    position: int
    topic: str
    group: str
    consumer: str
    attempt: int | None
    due_ms: int | None
    offset: int | None
    maybe_duplicate: bool
    detail: str
    run: str
    """Of a node-made row: of the process that wrote it."""
    sources: tuple[str, ...]
    """The nodes in whose ledgers it is."""

    @classmethod
    def of(cls, told: pb.HistoryRow) -> HistoryRow:
        """Return one row of an answer."""
        replicated = told.kind in REPLICATED
        return cls(
            told.kind,
            told.at_ms,
            told.term,
            told.index,
            told.position,
            told.topic,
            told.group,
            told.consumer,
            told.attempt if told.HasField("attempt") else None,
            told.due_ms if told.HasField("due_ms") else None,
            told.offset if told.HasField("offset") else None,
            told.maybe_duplicate,
            told.detail,
            "" if replicated else told.run,
            (told.source,),
        )


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """Answer of one node's ledger."""

    address: str
    node: str
    has_ledger: bool
    complete: bool
    """The rows of the message's whole life are told, or all that the ledger has of the time asked for."""
    from_beginning: bool
    """The row of its scheduling was found."""
    since_ms: int
    """Rows of then or later are told."""
    gaps: tuple[str, ...]
    """Rows that the ledger lacks, of the time looked through."""
    error: str
    """Why the node did not answer, or not to the end; else empty."""

    def doubts(self) -> list[str]:
        """Return what keeps this part of a history from being whole, a sentence each."""
        if self.error:
            return [f"did not answer to the end: {self.error}"]
        if not self.has_ledger:
            return ["it keeps no ledger: deliveries while it led are missing"]
        found = [f"its ledger lacks rows: {gap}" for gap in self.gaps if not gap.endswith("BEGUN")]
        if not self.complete:
            found.append(f"only rows from {self.since_ms} ms since the epoch on were looked through")
        elif not self.from_beginning:
            found.append("the scheduling is not found: the ledger, or the time asked for, begins behind it")
        return found


@dataclass(frozen=True, slots=True)
class MessageHistory:
    """Rows of the nodes' ledgers about a message, merged."""

    rows: tuple[HistoryRow, ...]
    """In the order of the log; what one node alone knows behind the entry that it had applied."""
    nodes: tuple[NodeHistory, ...]

    @property
    def complete(self) -> bool:
        """True if every node has told all, so that no delivery is missing, unless a ledger has gaps."""
        return all(node.complete and node.has_ledger and not node.error for node in self.nodes)

    def end_in(self, group: str) -> HistoryRow | None:
        """Return the row that ended the message in a group, None where it goes on or no row says so."""
        of_group = [row for row in self.rows if row.group == group and row.kind in _ENDS | {Kind.RETRIED}]
        last = max(of_group, key=lambda row: (row.index, row.position), default=None)
        return last if last is not None and last.kind in _ENDS else None


_ENDS: Final = {Kind.ACKED, Kind.DEAD, Kind.CANCELLED, Kind.EXPIRED}


def merged(rows: Iterable[HistoryRow]) -> tuple[HistoryRow, ...]:
    """Return rows of several ledgers, those that are equal once; in order."""
    by_row: dict[HistoryRow, list[str]] = {}
    for row in rows:
        by_row.setdefault(replace(row, sources=row.sources if row.run else ()), []).extend(row.sources)
    found = [replace(row, sources=tuple(sorted({*sources}))) for row, sources in by_row.items()]
    return tuple(sorted(found, key=_order))


def _order(row: HistoryRow) -> tuple[int, bool, int, int, Sequence[str]]:
    return row.index, bool(row.run), row.at_ms, row.position, row.sources
