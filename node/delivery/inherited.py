"""Cursors that a new leader has from the one before, of groups that nobody has opened yet.

There may be tens of thousands: they are taken over, and looked through, some in each turn of the event loop,
and sent in heartbeats as they were serialized once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.state_machine.acknowledgements import Acknowledgements, Key
from tarry.replication.state_machine.machine import Machine

PIECE_CURSORS: Final = 1_000
"""Of one turn: some 5 ms."""


class Inherited:
    """Cursors by group and queue."""

    def __init__(self, cursors: Iterable[log_pb.Cursor] = ()) -> None:
        self._parts: dict[Key, bytes] = {}  # each a DispatchState that has the cursor alone, serialized
        self._ends: dict[Key, int] = {}  # with all below acknowledged, the cursor says nothing more
        self._unseen: list[Key] = []
        self._serialized = b""
        for cursor in cursors:
            self.add(cursor)

    def add(self, cursor: log_pb.Cursor) -> None:
        """Keep the cursor of one group and queue."""
        key = cursor.group, cursor.queue
        self._parts[key] = log_pb.DispatchState(cursors=[cursor]).SerializeToString()
        self._ends[key] = max(cursor.offset, cursor.doubtful)
        self._serialized = b""

    def __contains__(self, key: Key) -> bool:
        return key in self._parts

    def find(self, key: Key) -> log_pb.Cursor | None:
        """Return the cursor."""
        part = self._parts.get(key)
        return None if part is None else log_pb.DispatchState.FromString(part).cursors[0]

    def end(self, group: str, queue: int) -> int:
        """Return the offset below which consumers of the group may have had anything, by its cursor."""
        return self._ends.get((group, queue), 0)

    def forget(self, key: Key) -> None:
        """Forget the cursor, if there is one."""
        if self._parts.pop(key, None) is not None:
            del self._ends[key]
            self._serialized = b""

    def forget_acknowledged(self, acknowledged: Mapping[Key, Acknowledgements], *, again: bool) -> None:
        """Forget what the log says as well, of as many as a turn may look at; ``again``: look at all anew."""
        if again and not self._unseen:
            self._unseen = list(self._parts)
        piece, self._unseen[-PIECE_CURSORS:] = self._unseen[-PIECE_CURSORS:], []
        for key in piece:
            done = acknowledged.get(key)
            if done is None or done.floor >= self._ends.get(key, 0):
                self.forget(key)

    def cursors(self) -> bytes:
        """Return all cursors as a part of a serialized DispatchState."""
        self._serialized = self._serialized or b"".join(self._parts.values())
        return self._serialized


def take_over(
    inherited: Inherited, states: Sequence[log_pb.DispatchState], machine: Machine
) -> Iterator[None]:
    """Find out where the leader before stood with each group, a piece before each value that is yielded.

    Whoever elected this node said what it knew of that, and one of them knew all that a majority had
    answered. Where one has heard nothing (it has just started, say), it may have been that one: then
    anything released may have been delivered.
    """
    newest = max(states, key=lambda state: (state.term, state.sequence))
    whole = all(state.term >= machine.term_before for state in states)
    queues = machine.queues
    for start in range(0, len(newest.cursors), PIECE_CURSORS):
        for cursor in newest.cursors[start : start + PIECE_CURSORS]:
            if (cursor.group, cursor.queue) in queues.acknowledged:
                units = queues[cursor.queue].units
                cursor.doubtful = min(cursor.doubtful, units) if whole else units
            inherited.add(cursor)
        yield
    if whole:
        return
    keys = list(queues.acknowledged)
    for start in range(0, len(keys), PIECE_CURSORS):
        for key in keys[start : start + PIECE_CURSORS]:
            done, units = queues.acknowledged.get(key), queues[key[1]].units
            if done is not None and done.floor < units and key not in inherited:
                inherited.add(log_pb.Cursor(group=key[0], queue=key[1], doubtful=units))
        yield
