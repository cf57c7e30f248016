"""Producers: the answers already given, so that a retry never schedules twice.

A producer numbers its requests; the last ``window`` answers of each are kept,
in a form of about two bytes a message: which hours, the first global index in
each, and for every message which of the hours it went to (messages of one
request and hour have consecutive global indices). The idea is Kafka's
idempotent producer, with answers instead of only a check.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tarry.proto import tarry_log_pb2 as log_pb

WINDOW: Final = 64
"""Answers kept of each producer."""
PRODUCERS_MAX: Final = 10_000
"""Producers remembered; the one not heard of for longest is forgotten first."""


def pack(sequence: int, hour: NDArray[np.uint32], global_index: NDArray[np.uint32]) -> log_pb.Answer:
    """Return the answer in its kept form. Both columns have shape (n,)."""
    hours, first, which = np.unique(hour, return_index=True, return_inverse=True)
    return log_pb.Answer(
        sequence=sequence,
        hours=hours.astype("<u4").tobytes(),
        first=global_index[first].astype("<u4").tobytes(),
        which=which.astype("<u2").tobytes(),
    )


def unpack(answer: log_pb.Answer) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return the columns hour and global index that ``pack`` was given."""
    hours = np.frombuffer(answer.hours, dtype="<u4")
    first = np.frombuffer(answer.first, dtype="<u4")
    which = np.frombuffer(answer.which, dtype="<u2")
    order = np.argsort(which, kind="stable")
    starts = np.searchsorted(which[order], np.arange(len(hours)))
    rank = np.empty(len(which), dtype=np.uint32)
    rank[order] = np.arange(len(which)) - starts[which[order]]
    return hours[which], first[which] + rank


@dataclass(slots=True)
class _Producer:
    highest: int = 0
    answers: dict[int, log_pb.Answer] = field(default_factory=dict)


class Producers:
    """Table producer -> last answers, bounded in both directions."""

    def __init__(self, window: int = WINDOW, producers_max: int = PRODUCERS_MAX) -> None:
        self._window = window
        self._producers_max = producers_max
        self._table: OrderedDict[str, _Producer] = OrderedDict()

    def answer(self, producer: str, sequence: int) -> log_pb.Answer | None:
        """Return the answer given to this request before, if it is still known."""
        known = self._table.get(producer)
        return known.answers.get(sequence) if known else None

    def too_old(self, producer: str, sequence: int) -> bool:
        """Return whether an answer to this request may have been given and forgotten."""
        known = self._table.get(producer)
        return known is not None and sequence + self._window <= known.highest

    def remember(self, producer: str, answer: log_pb.Answer) -> None:
        """Keep an answer; the oldest of the producer, and the stalest producer, make room."""
        known = self._table.setdefault(producer, _Producer())
        self._table.move_to_end(producer)
        known.answers[answer.sequence] = answer
        if answer.sequence > known.highest:
            known.highest = answer.sequence
            for sequence in [s for s in known.answers if s + self._window <= known.highest]:
                del known.answers[sequence]
        if len(self._table) > self._producers_max:
            self._table.popitem(last=False)

    def capture(self) -> list[log_pb.ProducerCheckpoint]:
        """Return the table for a checkpoint, stalest producer first."""
        return [
            log_pb.ProducerCheckpoint(
                producer=name,
                highest=known.highest,
                answers=[known.answers[s] for s in sorted(known.answers)],
            )
            for name, known in self._table.items()
        ]

    def recover(self, table: Iterable[log_pb.ProducerCheckpoint]) -> None:
        """Become what ``capture`` returned."""
        self._table = OrderedDict(
            (p.producer, _Producer(p.highest, {a.sequence: a for a in p.answers})) for p in table
        )
