"""Answers to repeated schedule requests: their due times are looked up in pieces, one in each turn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from tarry.node.delivery.offset_pieces import Pieces
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.state_machine import producer_answers
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.schedule import response
from tarry.wheel.columns import portions
from tarry.wheel.state import HOUR_MS, UnknownMessage

R = TypeVar("R")

PIECE_NS: Final = 6_000_000
"""Estimated cost of looking up the messages of one piece."""


class Repeats:
    """Completes the answers that were given before: those that are kept have no due times."""

    def __init__(self, shard: int, machine: Machine) -> None:
        self._shard = shard
        self._machine = machine
        self._pieces = Pieces()

    async def response(self, given: log_pb.Answer) -> bytes:
        """Return the answer given before as a ScheduleBatchResponse, serialized, marked as repeated.

        An hour is deleted long after its messages have been released. Then the due times of all the answer's
        messages are told as the starts of their hours.
        """
        # A single message waits for no turn: after a change of leaders thousands are repeated at one time.
        done = _at_once if producer_answers.count(given) == 1 else self._pieces.alone
        hour, global_index, pieces = await done(partial(self._cut, given))
        due_ms = np.empty(len(hour), dtype=np.int64)
        try:
            for rows in pieces:
                due_ms[rows] = await done(partial(self._machine.due_ms, hour[rows], global_index[rows]))
        except UnknownMessage:
            due_ms = hour.astype(np.int64) * HOUR_MS
        named = self._machine.wheel.first_ids_of(hour, global_index)  # the places of first are kept
        given_hour, given_index = (column.astype("<u4").tobytes() for column in named)
        due = due_ms.astype("<i8").tobytes()
        return response(self._shard, given_hour, given_index, due, b"", repeated=True)

    def _cut(
        self, given: log_pb.Answer
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32], list[NDArray[np.intp]]]:
        """Return an answer's columns hour and global index, and the rows of each piece."""
        hour, global_index = producer_answers.unpack(given)
        if len(hour) == 1:
            return hour, global_index, [np.zeros(1, dtype=np.intp)]
        order = np.argsort(hour, kind="stable")
        costs_ns = self._machine.wheel.costs_ns(hour[order], global_index[order])
        return hour, global_index, [order[rows] for rows in portions(costs_ns, PIECE_NS)]


async def _at_once(work: Callable[[], R]) -> R:
    return work()
