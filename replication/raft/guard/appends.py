"""Comparison of appends with the journal, before the engine sees them.

The engine deletes everything after `prev_index` even where the entries agree, and takes the leader's
commit index for entries that this append did not verify. A late duplicate then takes back what was
acknowledged. So every append is compared with the journal first: entries that agree are skipped, and only
a real conflict of terms, never at or below the commit index, reaches the engine's truncation.
The engine's back-off of one entry per round trip becomes one step: the commit index, which always agrees
(Leader Completeness).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tarry.proto.tarry_peer_pb2 import Append, LoggedEntry


class AnotherHistory(Exception):
    """The leader's log has another content than this one where both have the same term.

    That never happens in one cluster: most of its members have lost their data and begun anew, while this
    one was away. Stop: here may be what they have lost.
    """


class CommittedEntryConflict(Exception):
    """A leader wants an entry replaced that is committed here: the cluster's logs have diverged. Stop."""


class Log(Protocol):
    @property
    def first_index(self) -> int: ...
    @property
    def last_index(self) -> int: ...
    def term_at(self, index: int) -> int | None: ...
    def chain_at(self, index: int) -> int: ...
    def entry(self, index: int) -> tuple[bytes, int, int]: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """The append as the engine is to see it, and the answer to send instead of the engine's."""

    prev_index: int
    prev_term: int
    entries: Sequence[LoggedEntry]
    commit_index: int
    next_index: int
    success: bool


def plan(append: Append, log: Log, commit_index: int) -> Plan:
    """Compare an append with the log. Raises AnotherHistory, CommittedEntryConflict."""
    prev = append.prev_index
    if (
        append.prev_chain
        and log.term_at(prev) == append.prev_term
        and log.chain_at(prev) != append.prev_chain
    ):
        raise AnotherHistory(_text(prev, append.prev_term))
    if append.prev_index > max(log.last_index, commit_index) or _differs(append, log, commit_index):
        return Plan(append.prev_index, append.prev_term, (), 0, commit_index + 1, success=False)
    verified = append.prev_index + len(append.entries)
    fresh = _first_new(append, log, commit_index)
    commit = min(append.commit_index, verified)
    if fresh > verified:  # nothing new; what follows here may still come from an older leader
        last = log.last_index
        return Plan(last, log.term_at(last) or 0, (), commit, verified + 1, success=True)
    if fresh <= log.last_index and fresh <= commit_index:
        raise CommittedEntryConflict(f"entry {fresh}; committed {commit_index}")
    prev = fresh - 1
    entries = append.entries[fresh - append.prev_index - 1 :]
    return Plan(prev, log.term_at(prev) or 0, entries, commit, verified + 1, success=True)


def _differs(append: Append, log: Log, commit_index: int) -> bool:
    """Return whether the terms differ; up to the commit index they cannot, and may be compacted here."""
    return append.prev_index > commit_index and log.term_at(append.prev_index) != append.prev_term


def _first_new(append: Append, log: Log, commit_index: int) -> int:
    """Return the index of the first entry that the log lacks or has with another term; past the end: none."""
    index = append.prev_index + 1
    for entry in append.entries:
        held = log.term_at(index)
        if index > log.last_index or (held is not None and held != entry.term):
            return index
        if held is None and index > commit_index:
            return index
        # The first may be a snapshot's mark, which has no payload of its own.
        if held is not None and index > log.first_index and log.entry(index)[0] != entry.payload:
            raise AnotherHistory(_text(index, held))
        index += 1
    return index


def _text(index: int, term: int) -> str:
    return (
        f"entry {index} of term {term} is another than the leader's: most others have lost theirs, keep this"
    )
