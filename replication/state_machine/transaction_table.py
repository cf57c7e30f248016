"""Table of transactions: replicated state, in memory and in checkpoints.

Open ones by number, by name, and by the place of their half message; of those that have ended the latest, so
that a repeated commit or rollback is answered as the first was. A transaction is a TransactionCheckpoint,
kept as it is written and read where it is changed, so a checkpoint takes references alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Final

import numpy as np

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_transaction_pb2 as pb
from tarry.replication.state_machine.queues import Queues
from tarry.wheel.state import Flags, Numbers

OPEN: Final = pb.TRANSACTION_STATE_OPEN
FORGOTTEN_MAX: Final = 64
"""Ended transactions that one command forgets at most, where the leader's limit was lowered."""


@dataclass(slots=True)
class Row:
    """A transaction: what is looked at often, and its state."""

    number: int
    producer_group: str
    name: str
    topic: str
    place: int
    """Of an open one's half message, hour << 32 | global index; else of the message, or 0."""
    end: int
    """Grows with each one that ends; 0: it is open."""
    part: bytes
    """A TransactionCheckpoint."""

    def state(self) -> log_pb.TransactionCheckpoint:
        """Return the state, to be changed and stored."""
        return log_pb.TransactionCheckpoint.FromString(self.part)


class Transactions:
    """All open transactions, and the latest of those that have ended."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self.number = 0
        """Of the last one prepared."""
        self.end = 0
        """Of the last one that ended."""
        self._open: dict[int, Row] = {}  # by number, ascending: numbers only grow
        self._ended: dict[int, Row] = {}  # by number, in the order of their ends
        self._names: dict[tuple[str, str], Row] = {}
        self._places: dict[int, Row] = {}

    def recover(self, checkpoint: log_pb.Checkpoint) -> None:
        """Take the transactions of a checkpoint."""
        self.number, self.end = checkpoint.transaction_number, checkpoint.transaction_end
        for part in checkpoint.transactions:
            state = log_pb.TransactionCheckpoint.FromString(part)
            self._add(_row(state, part), state)

    def __len__(self) -> int:
        """Return the number of open ones."""
        return len(self._open)

    @property
    def ended(self) -> int:
        """Number of those that have ended and are remembered."""
        return len(self._ended)

    @property
    def forgotten(self) -> int:
        """Number of those that have ended and are forgotten."""
        return self.end - len(self._ended)

    @property
    def remembered_ms(self) -> int:
        """Time at which the oldest that is remembered ended; 0: none has."""
        return next((row.state().ended_ms for row in self._ended.values()), 0)

    def named(self, producer_group: str, name: str) -> Row | None:
        """Return the transaction of a name, open or remembered."""
        return self._names.get((producer_group, name))

    def numbered(self, number: int) -> Row | None:
        """Return the open transaction of a number."""
        return self._open.get(number)

    def at(self, hour: int, global_index: int) -> Row | None:
        """Return the open transaction whose half message rests at a place."""
        return self._places.get(place_of(hour, global_index))

    def rest_at(self, hour: Numbers, global_index: Numbers) -> Flags:
        """Flag the places, shape (n,), at which the half messages of open transactions rest."""
        if not self._places:
            return np.zeros(len(hour), np.bool_)
        places = hour.astype(np.uint64) << np.uint64(32) | global_index
        return np.fromiter(map(self._places.__contains__, places.tolist()), np.bool_, len(places))

    def rows(self, *, ended: bool) -> list[Row]:
        """Return the open ones by number, or those that have ended in the order of their ends."""
        return list((self._ended if ended else self._open).values())

    def known(self, number: int) -> Row | None:
        """Return the transaction of a number, open or remembered."""
        return self._open.get(number) or self._ended.get(number)

    def store(self, state: log_pb.TransactionCheckpoint, ended_max: int = 0) -> None:
        """Keep a state as it is now; of one that ends, forget the oldest of more than ``ended_max``."""
        known = self._open.get(state.number)
        if known is not None:
            del self._places[known.place]
            self._queues.count_halves(state.queue, -1)
        if state.state != OPEN:
            self._open.pop(state.number, None)
            self.end += 1
            state.end = self.end
        self._add(_row(state, state.SerializeToString()), state)
        for number in list(self._beyond(ended_max)) if state.end else ():
            row = self._ended.pop(number)
            del self._names[row.producer_group, row.name]

    def capture(self) -> Sequence[bytes]:
        """Return the states: the open ones by number, then the others in the order of their ends."""
        return list(map(attrgetter("part"), chain(self._open.values(), self._ended.values())))

    def _add(self, row: Row, state: log_pb.TransactionCheckpoint) -> None:
        self._names[row.producer_group, row.name] = row
        if row.end:
            self._ended[row.number] = row
            return
        self._open[row.number] = row  # one that is known keeps its place in the order
        self._places[row.place] = row
        self._queues.count_halves(state.queue, 1)

    def _beyond(self, ended_max: int) -> Iterator[int]:
        beyond = min(len(self._ended) - max(1, ended_max), FORGOTTEN_MAX)
        return (number for number, _ in zip(self._ended, range(beyond), strict=False))


def place_of(hour: int, global_index: int) -> int:
    """Return a place as one number."""
    return hour << 32 | global_index


def _row(state: log_pb.TransactionCheckpoint, part: bytes) -> Row:
    place = place_of(state.place_hour, state.place_index)
    return Row(state.number, state.producer_group, state.transaction, state.topic, place, state.end, part)
