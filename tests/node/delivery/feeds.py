"""Feeds of one queue, for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tarry.node.delivery.feed import Feed
from tarry.node.delivery.ordering import Lanes
from tarry.replication.state_machine.acknowledgements import Acknowledgements
from tarry.replication.state_machine.queues import Queues
from tarry.replication.state_machine.ready_queue import ReadyQueue


def column(values: object) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


def feed_of(queue: ReadyQueue, acknowledged: Acknowledgements) -> Feed:
    return Feed(queue, acknowledged, Lanes(Queues(Path()), queue.queue, 1))
