"""What retention takes from a topic before one of its groups is made: nobody promises it to that group.

A topic keeps what it has released for its retention, and longer only for the groups that it has. So a
group whose consumers reach no leader in time begins behind what is gone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.state_machine.commands import decode
from tarry.replication.state_machine.queues import Queues
from tests.simulation.ledger import Id, Ledger
from tests.simulation.rows import Rows


class Forgotten:
    """Tells the ledger of it, from the entries in their order."""

    def __init__(self, ledger: Ledger, rows: Rows, retention_ms: int) -> None:
        self._ledger = ledger
        self._rows = rows
        self._kept_ms = retention_ms - 2 * ledger.early_ms
        """At least; by twice that the time of two leaders differs at most."""
        self._made: set[str] = set()
        """Groups that were ever made, as `topic/group`: what these lose is a finding."""
        self._index = 0

    def forget(self, last: int) -> None:
        """What comes behind that entry is lost for good."""
        self._index = min(self._index, last)

    def applied(self, index: int, commands: Sequence[bytes], queues: Queues) -> None:
        """One replica has applied an entry; only the first to do so counts."""
        if index <= self._index:
            return
        self._index = index
        for command in map(decode, commands):
            if isinstance(command, log_pb.SubscribeCommand):
                self._made.add(f"{command.topic}/{command.group}")
            elif isinstance(command, log_pb.TrimCommand):
                self._trimmed(command, queues)

    def _trimmed(self, command: log_pb.TrimCommand, queues: Queues) -> None:
        numbers = np.frombuffer(command.queue, dtype="<u4").tolist()
        cuts = np.frombuffer(command.offset, dtype="<u8").tolist()
        for number, cut in zip(numbers, cuts, strict=True):
            topic = queues[number].topic
            absent = set() if queues[number].group else self._ledger.groups_of(topic) - self._made
            gone = self._old(topic, cut, command.now_ms) if absent else set()
            for group in absent:
                self._ledger.forgotten[group] |= gone

    def _old(self, topic: str, cut: int, now_ms: int) -> set[Id]:
        """Return what lies below a cut, and was kept for as long as its topic says."""
        return {
            message
            for message, (offset, released_ms) in self._rows.released[topic].items()
            if offset < cut and now_ms - released_ms >= self._kept_ms
        }
