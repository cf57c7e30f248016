"""Lease of a leader: the time until which no other can be elected.

Each heartbeat carries the leader's monotonic time, and its answer brings it back. Whoever answered elects
nobody else for the minimum election timeout from when the heartbeat arrived, so from when it was sent; a
majority of such answers is a lease (dissertation §6.4.1), ended early by the error of the clocks' rates.
A heartbeat may ask for a longer promise, for the next will come later: then the lease is longer as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from itertools import repeat


@dataclass(slots=True)
class Lease:
    echoed: dict[str, float] = field(default_factory=dict)
    """By peer: the highest send time it gave back."""
    promised: dict[str, float] = field(default_factory=dict)
    """By peer: until when it elects nobody else."""
    not_before: float = -math.inf
    """Heartbeats sent earlier do not count: a transfer or an earlier term lies between."""

    def begin(self, now: float) -> None:
        """Forget all answers, also those in flight."""
        self.echoed.clear()
        self.promised.clear()
        self.not_before = now

    def echo(self, peer: str, sent: float, now: float, length_s: float) -> None:
        """Count an answer; `length_s`: duration of its promise, from the sending on."""
        if self.not_before <= sent <= now:
            self.echoed[peer] = max(sent, self.echoed.get(peer, -math.inf))
            self.promised[peer] = max(sent + length_s, self.promised.get(peer, -math.inf))

    def has_echoed(self, peer: str, since: float) -> bool:
        return self.echoed.get(peer, -math.inf) >= since

    def confirmed(self, voters: Set[str]) -> float:
        """Return the send time of the latest heartbeats that a majority of `voters` and us has answered."""
        return _of_a_majority(self.echoed, voters)

    def valid(self, now: float, voters: Set[str]) -> bool:
        return now < _of_a_majority(self.promised, voters)


def _of_a_majority(times: Mapping[str, float], voters: Set[str]) -> float:
    """Return the latest time that a majority has reached; infinite if this replica is alone."""
    needed = (len(voters) + 1) // 2
    if needed == 0:
        return math.inf
    return sorted(map(times.get, voters, repeat(-math.inf)), reverse=True)[needed - 1]
