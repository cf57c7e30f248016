"""That messages with an ordering key are delivered one after another, to each group, in order."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from tarry.node.delivery.batch import DeliveryBatch
from tarry.proto.ledger.schema import Kind
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.ready_queue import UnitsDamaged
from tests.simulation.checker import Violation
from tests.simulation.ledger import UNKNOWN, Id

SETTLED = (Kind.ACKED, Kind.DEAD, Kind.CANCELLED)
"""Of what is cancelled for a group the copy that waits for its retry is gone."""


class Order:
    """Of one run, by what the log has settled: `messages`, by `topic/group` and kind of row."""

    def __init__(self, messages: defaultdict[tuple[str, Kind], set[Id]]) -> None:
        self._messages = messages
        self._out: defaultdict[str, defaultdict[int, set[Id]]] = defaultdict(lambda: defaultdict(set))
        self._moves: defaultdict[str, set[int]] = defaultdict(set)
        """Entries that move a group, which no leader had applied when it last delivered to it."""
        self.delivered = 0
        """Messages with a key."""

    def moved(self, place: str, index: int) -> None:
        """An entry lets a group go on somewhere else, once its leader has applied it: others may be ahead."""
        self._moves[place].add(index)

    def _begin_again(self, place: str, applied: int) -> None:
        """What a group had in hand when its leader applied that it is moved does not count."""
        done = {index for index in self._moves[place] if index <= applied}
        if done:
            self._moves[place] -= done
            self._out.pop(place, None)

    def delivered_by(self, machine: Machine, batch: DeliveryBatch, topic: str, group: str) -> None:
        """A leader delivers a batch: nothing that comes before in a lane may be unsettled."""
        lanes = batch.units["lane"]
        if not lanes.any():
            return
        place = f"{topic}/{group}"
        self._begin_again(place, machine.applied_index)
        if machine.queues[batch.queue].group == "":
            self._check_earlier(machine, batch, group)
        settled = set().union(*(self._messages[place, kind] for kind in SETTLED))
        ids = zip(batch.hour.tolist(), batch.global_index.tolist(), strict=True)
        for lane, message in zip(lanes.tolist(), ids, strict=True):
            if not lane:
                continue
            out = self._out[place][lane]
            out -= settled
            if UNKNOWN not in settled and out - {message}:
                raise Violation(f"O1: {message} goes to {place} while {out} of its lane is out")
            out.add(message)
            self.delivered += 1

    def _check_earlier(self, machine: Machine, batch: DeliveryBatch, group: str) -> None:
        """Of what lies in the ready queue. What a filter leaves out is passed over, and settled later."""
        queue = machine.queues[batch.queue]
        acknowledged = machine.queues.acknowledged[group, batch.queue]
        offsets = np.arange(max(queue.first, acknowledged.floor), queue.units, dtype=np.uint64)
        offsets = offsets[~acknowledged.contains(offsets)]
        try:
            left = queue.at(offsets)
        except UnitsDamaged:  # has rotted there; what is delivered had been read before
            return
        for unit in batch.units[batch.units["lane"] != 0]:
            same = left["lane"] == unit["lane"]
            before = left["due_ms"] < unit["due_ms"]
            before |= (left["due_ms"] == unit["due_ms"]) & (offsets < unit["offset"])
            if group != "red" and (same & before).any():
                first = offsets[same & before].tolist()
                raise Violation(
                    f"O2: offset {unit['offset']} of {queue.topic} goes to {group} before {first}"
                )
