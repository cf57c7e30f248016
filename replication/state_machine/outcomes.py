"""Outcomes of commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tarry.replication.state_machine.administration import Changed
from tarry.replication.state_machine.refusal import Refusal
from tarry.replication.state_machine.schedule import Repeated, Scheduled


@dataclass(frozen=True, slots=True)
class Released:
    """Outcome of a release: how many the cut took to their ready queues, beside those that overtook."""

    count: int


@dataclass(frozen=True, slots=True)
class Acked:
    """Outcome of an ack or a retry: the offsets that had been done before, shape (k,)."""

    stale: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Outcome of a cancel: a wheel CancelOutcome for each message, shape (n,)."""

    outcomes: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Subscribed:
    """Outcome of a subscribe: the numbers of the topic's queue and of the group's retry queue."""

    queue: int
    retry_queue: int


Outcome: TypeAlias = Scheduled | Repeated | Released | Acked | Cancelled | Subscribed | Changed | Refusal
