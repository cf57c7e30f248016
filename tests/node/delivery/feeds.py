"""Feeds of one queue, for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tarry.node.delivery.feed import Feed
from tarry.node.delivery.ordering import Lanes
from tarry.replication.state_machine.acknowledgements import Acknowledgements
from tarry.replication.state_machine.queues import Queues
from tarry.replication.state_machine.ready_queue import UNIT, ReadyQueue


def column(values: object) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


def feed_of(queue: ReadyQueue, acknowledged: Acknowledgements) -> Feed:
    return Feed(queue, acknowledged, Lanes(Queues(Path()), queue.queue, 1))


def fill(queue: ReadyQueue, dues: list[int], masks: list[int] | None = None) -> None:
    """Append units with these due times to a queue."""
    units = np.zeros(len(dues), dtype=UNIT)
    units["due_ms"] = dues
    units["tag_mask"] = masks or 0
    queue.append(units)
